// How a plugin that uses backend.hpp distinguishes a complete upload from a truncated one.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "isogate/backend.hpp"
#include "lib/fd.h"

namespace isogate {
namespace {

struct Upload {
  Upload() : pipe(std::move(*make_pipe())), cancel(::eventfd(0, 0)), complete(::eventfd(0, 0)) {
    abi.cancel_fd = cancel.get();
    request.fd = pipe.read.get();
    request.complete_fd = complete.get();
  }
  size_t read() { return sdk::Call(abi).read_body(request, buffer, sizeof buffer); }
  void send(const char* text) { ASSERT_GT(::write(pipe.write.get(), text, std::strlen(text)), 0); }
  static void fire(const Fd& event) { ASSERT_EQ(::eventfd_write(event.get(), 1), 0); }

  Pipe pipe;
  Fd cancel, complete;
  isogate_call abi{};
  isogate_file_request request{};
  char buffer[64] = {};
};

TEST(ReadBody, AWholeBodyEndsWithZero) {
  Upload upload;
  upload.send("hello");
  Upload::fire(upload.complete);
  upload.pipe.write.reset();
  EXPECT_EQ(upload.read(), 5u);
  EXPECT_EQ(upload.read(), 0u);
}

TEST(ReadBody, ABodyWhoseSenderIsGoneThrows) {
  Upload upload;
  upload.send("hel");
  upload.pipe.write.reset();
  EXPECT_EQ(upload.read(), 3u);
  EXPECT_THROW((void)upload.read(), sdk::Error);
}

TEST(ReadBody, ACancelledBodyThrows) {
  Upload upload;
  Upload::fire(upload.cancel);
  EXPECT_THROW((void)upload.read(), sdk::Error);
}

TEST(ReadBody, WithoutACompleteDescriptorTheEndSuffices) {
  Upload upload;
  upload.request.complete_fd = -1;
  upload.pipe.write.reset();
  EXPECT_EQ(upload.read(), 0u);
}

}  // namespace
}  // namespace isogate
