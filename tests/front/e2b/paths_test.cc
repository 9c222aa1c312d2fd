#include "gateway/front/e2b/paths.h"

#include <gtest/gtest.h>

#include "gateway/front/e2b/record.h"
#include "isogate/backend.h"

namespace isogate::front::e2b {
namespace {

TEST(E2bPaths, AHomeIsTheWorkspaceWhateverItsName) {
  struct Row {
    const char *path, *expected, *shown;
    bool workspace = true;
  };
  for (const Row& row : {Row{"", ".", "/home/user"},
                         {".", ".", "/home/user"},
                         {"~", ".", "/home/user"},
                         {"~/a", "a", "/home/user/a"},
                         {"~//a", "a", "/home/user/a"},
                         {"/home/user", ".", "/home/user"},
                         {"/home/user/", ".", "/home/user"},
                         {"/home//user/./a/../b", "b", "/home/user/b"},
                         {"a/b", "a/b", "/home/user/a/b"},
                         {"~other/x", "~other/x", "/home/user/~other/x"},
                         {"..", "/home", "/home", false},
                         {"../userx/f", "/home/userx/f", "/home/userx/f", false},
                         {"/home/user/../../etc/passwd", "/etc/passwd", "/etc/passwd", false},
                         {"/home/username", "/home/username", "/home/username", false},
                         {"/../..", "/", "/", false},
                         {"/", "/", "/", false}}) {
    const Place place = place_of(row.path, "/home/user");
    EXPECT_EQ(place.path, row.expected) << row.path;
    EXPECT_EQ(place.shown, row.shown) << row.path;
    EXPECT_EQ(place.scope == ISOGATE_SCOPE_WORKSPACE, row.workspace) << row.path;
  }
  EXPECT_EQ(place_of("x", "/").path, "x");
}

TEST(E2bRecord, WhatIsKeptIsReadAgain) {
  const Record record{.template_id = "base",
                      .token = "t",
                      .home = "/home/user",
                      .metadata = {{"a", "1"}, {"b", "\xc3\xbc"}},
                      .env = {{"X", ""}},
                      .started_ms = 5};
  const auto again = record_in(record_text(record));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->token, "t");
  EXPECT_EQ(again->metadata, record.metadata);
  EXPECT_EQ(again->env, record.env);
  for (const char* none : {"", "{", "[]", "{}", R"({"template":"base"})", "null"})
    EXPECT_FALSE(record_in(none)) << none;
  const std::string whole = record_text({.template_id = "t", .token = "t", .home = "/", .started_ms = 7});
  ASSERT_TRUE(record_in(whole));
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& none :
       {changed(":7", ":1e300"), changed(":7", ":true"), changed(R"("env":{})", R"("env":["a"])"),
        changed(R"("env":{})", R"("env":"a")"), changed(R"("env":{})", R"("env":{"a":1})")})
    EXPECT_FALSE(record_in(none)) << none;
}

}  // namespace
}  // namespace isogate::front::e2b
