#include "gateway/front/e2b/entries.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "isogate/backend.h"

namespace isogate::front::e2b {
namespace {

TEST(E2bEntries, EachTypeHasItsName) {
  const auto type_of = [](uint32_t type) {
    return entry_json(ipc::Entry{.type = type}, "/home/user/a").at("type").get<std::string>();
  };
  EXPECT_EQ(type_of(ISOGATE_ENTRY_REGULAR), "FILE_TYPE_FILE");
  EXPECT_EQ(type_of(ISOGATE_ENTRY_DIRECTORY), "FILE_TYPE_DIRECTORY");
  EXPECT_EQ(type_of(ISOGATE_ENTRY_SYMLINK), "FILE_TYPE_SYMLINK");
  EXPECT_EQ(type_of(ISOGATE_ENTRY_OTHER), "FILE_TYPE_UNSPECIFIED");
}

}  // namespace
}  // namespace isogate::front::e2b
