#include "gateway/front/e2b/rpc.h"

#include <gtest/gtest.h>

namespace isogate::front::e2b {
namespace {

// SDKs answer resource_exhausted with "try again later".
TEST(E2bRpc, OnlyARateLimitIsToBeTriedAgain) {
  EXPECT_EQ(rpc_code({.code = Code::kRateLimited}).text, "resource_exhausted");
  for (const Code code : {Code::kFileTooLarge, Code::kQuotaExceeded}) {
    const RpcCode found = rpc_code({.code = code});
    EXPECT_NE(found.text, "resource_exhausted");
    EXPECT_EQ(found.status, 400u);
  }
}

TEST(E2bRpc, ASandboxThatIsGoneIsReportedInTheWordsOfTheSdk) {
  const ApiError gone = sandbox_is_gone();
  EXPECT_EQ(rpc_code(gone).text, "unavailable");
  EXPECT_NE(gone.message.find("was not found"), std::string::npos) << "exceptions.py of e2b 2.63";
}

}  // namespace
}  // namespace isogate::front::e2b
