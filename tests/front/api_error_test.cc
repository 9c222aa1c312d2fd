#include "gateway/front/base/api_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace isogate::front {
namespace {

TEST(Exhausted, IsWorthAnotherTryWhereItPassesByItself) {
  struct Row {
    int os_errno;
    unsigned status;
    const char* code;
    bool retryable;
  };
  for (const Row& row : {Row{EMFILE, 429, "rate_limited", true}, Row{ENFILE, 429, "rate_limited", true},
                         Row{EAGAIN, 429, "rate_limited", true}, Row{ENOMEM, 429, "rate_limited", true},
                         Row{EBUSY, 409, "file_busy", true}, Row{EFBIG, 413, "file_too_large", false},
                         Row{ENOSPC, 507, "quota_exceeded", false}, Row{EDQUOT, 507, "quota_exceeded", false},
                         Row{0, 507, "quota_exceeded", false}}) {
    const ApiError error = from_backend({ISOGATE_RESOURCE_EXHAUSTED, row.os_errno, "x"});
    EXPECT_EQ(error.http_status(), row.status) << row.os_errno;
    EXPECT_EQ(error.code_text(), row.code) << row.os_errno;
    EXPECT_EQ(error.body("id").find("\"retryable\":true") != std::string::npos, row.retryable)
        << row.os_errno;
    EXPECT_EQ(error.retry_after_sec > 0, row.retryable) << row.os_errno;
  }
}

TEST(FromBackend, WhatIsUnavailableSaysWhenToTryAgain) {
  for (const isogate_status status : {ISOGATE_UNAVAILABLE, ISOGATE_NO_SANDBOX, ISOGATE_CANCELLED}) {
    const ApiError error = from_backend({status, 0, "x"});
    EXPECT_EQ(error.code_text(), "backend_unavailable") << status;
    EXPECT_GT(error.retry_after_sec, 0u) << status;
  }
}

TEST(ApiError, OfAFileCallHasNoPathForTheLog) {
  const auto fault = [](std::string message, bool of_file = true) {
    return ApiError{.code = Code::kInternal, .message = std::move(message), .of_file = of_file}.fault();
  };
  EXPECT_EQ(fault("cannot start `isg-a`: busy", false), "cannot start `isg-a`: busy");
  EXPECT_EQ(fault("the Engine is away"), "the Engine is away");
  EXPECT_EQ(fault("cannot read `a`b`: Input/output error"), "cannot read `…`");
  EXPECT_EQ(fault("cannot read `a`: Input/output error"), "cannot read `…`: Input/output error");
  EXPECT_EQ(fault("cannot move `a` to `b`: Input/output error"), "cannot move `…`: Input/output error");
  EXPECT_EQ(fault("Input/output error: `aaaa"), "Input/output error: `…`");
  EXPECT_EQ(fault("Input/output error: `a`" + std::string(1000, 'a')), "Input/output error: `…`");
}

}  // namespace
}  // namespace isogate::front
