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

}  // namespace
}  // namespace isogate::front
