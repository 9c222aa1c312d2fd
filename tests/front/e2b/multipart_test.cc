#include "gateway/front/e2b/multipart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "tests/front/e2b/body.h"

namespace isogate::front::e2b {
namespace {

struct Read {
  std::string name, filename, bytes;
  bool operator==(const Read&) const = default;
};

void PrintTo(const Read& read, std::ostream* to) {
  *to << read.name << " " << read.filename << " " << read.bytes;
}

std::vector<Read> parts_of(const std::string& body, size_t step = SIZE_MAX) {
  std::vector<Read> all;
  const auto read_all = [&]() -> boost::asio::awaitable<void> {
    Multipart parts("b0und", body_of(body, step));
    while (const auto part = co_await parts.next()) {
      Read read{part->name, part->filename.value_or("-"), ""};
      for (std::string_view piece = co_await parts.read(); !piece.empty(); piece = co_await parts.read())
        read.bytes += piece;
      all.push_back(std::move(read));
    }
  };
  run(read_all());
  return all;
}

std::string refusal_of(const std::string& body) {
  try {
    parts_of(body);
  } catch (const ApiError& error) {
    return error.message;
  }
  return {};
}

std::string part(const std::string& disposition, const std::string& bytes) {
  return "--b0und\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + bytes + "\r\n";
}

constexpr const char* kEnd = "--b0und--\r\n";

TEST(Multipart, PartsArriveUnchangedWhereverTheyAreCut) {
  const std::string tricky = "\r\n--b0un\r\n--b0unD\r\n\r\n--\0x" + std::string(1000, '\r');
  const std::string body = "preamble\r\n" + part("name=\"file\"; filename=\"/home/user/a b\"", tricky) +
                           part("name=\"file\"; filename=\"ü;=.txt\"", "") + part("name=other", "x") + kEnd +
                           "epilogue";
  const std::vector<Read> expected = {
      {"file", "/home/user/a b", tricky}, {"file", "ü;=.txt", ""}, {"other", "-", "x"}};
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{64}, SIZE_MAX})
    EXPECT_EQ(parts_of(body, step), expected) << step;
}

TEST(Multipart, NamesAreUnescapedAsFormsEscapeThem) {
  EXPECT_EQ(parts_of(part("name=\"file\"; filename=\"a%22b%0D%0Ac%20%2e\\\"d\"", "") + kEnd).at(0).filename,
            "a\"b\r\nc%20%2e\"d");
}

TEST(Multipart, ABackslashIsAnEscapeOnlyBeforeAQuoteOrABackslash) {
  const auto name_of = [](const std::string& text) {
    return parts_of(part("name=\"file\"; filename=\"" + text + "\"; x=y", "") + kEnd).at(0).filename;
  };
  EXPECT_EQ(name_of(R"(C:\dir\new.txt)"), R"(C:\dir\new.txt)");
  EXPECT_EQ(name_of(R"(a\"b\\c)"), R"(a"b\c)");
  EXPECT_EQ(name_of(R"(end\\)"), R"(end\)");
}

TEST(Multipart, WhatIsNotReadOfAPartIsSkipped) {
  size_t seen = 0;
  const std::string body = part("name=a", std::string(300000, 'x')) + part("name=b", "y") + kEnd;
  const auto skip = [&]() -> boost::asio::awaitable<void> {
    Multipart parts("b0und", body_of(body, 4096));
    while (co_await parts.next()) ++seen;
  };
  run(skip());
  EXPECT_EQ(seen, 2u);
}

// A gzip of it may be small, and have no end.
TEST(Multipart, WhatIsSkippedIsBounded) {
  const auto endless = [](std::string begin) -> ReadBody {
    const auto first = std::make_shared<std::string>(std::move(begin));
    const auto given = std::make_shared<size_t>(0);
    return [first, given](char* data, size_t size) -> boost::asio::awaitable<size_t> {
      *given += size;
      if (*given > 4 * Multipart::kMostSkipped) co_return 0;  // so that a failure has an end
      std::fill_n(data, size, 'x');
      std::copy(first->begin(), first->end(), data);
      first->clear();
      co_return size;
    };
  };
  const std::string small = part("name=a", std::string(1000, 'y'));
  for (const std::string& begin :
       {std::string(), std::string("--b0und\r\nX: name=a\r\n\r\n"), small + kEnd}) {
    std::string refusal;
    const auto skip = [&]() -> boost::asio::awaitable<void> {
      Multipart parts("b0und", endless(begin));
      while (co_await parts.next()) {
      }
    };
    try {
      run(skip());
    } catch (const ApiError& error) {
      refusal = error.message;
    }
    EXPECT_NE(refusal.find("1048576 bytes"), std::string::npos) << begin << refusal;
  }
  std::string many;
  for (int i = 0; i < 5; ++i) many += part("name=a", std::string(300000, 'x'));
  EXPECT_EQ(parts_of(many + kEnd).size(), 5U) << "what is read is not bounded";
  const auto skip_all = [&]() -> boost::asio::awaitable<void> {
    Multipart parts("b0und", body_of(many + kEnd, SIZE_MAX));
    while (co_await parts.next()) {
    }
  };
  EXPECT_THROW(run(skip_all()), ApiError) << "in all";
}

TEST(Multipart, AMalformedBodyIsRefused) {
  EXPECT_NE(refusal_of(""), "");
  EXPECT_NE(refusal_of("no boundary"), "");
  EXPECT_NE(refusal_of(part("name=a", "cut")), "") << "no last boundary";
  EXPECT_NE(refusal_of("--b0und\r\nContent-Disposition: form-data; name=a\r\n\r\ncut"), "");
  EXPECT_NE(refusal_of("--b0und\r\nno colon\r\n\r\n\r\n--b0und--"), "");
  EXPECT_NE(refusal_of("--b0undary\r\n\r\n\r\n--b0und--"), "");
  EXPECT_NE(refusal_of("--b0und\r\nX: " + std::string(20000, 'x') + "\r\n\r\n\r\n--b0und--"), "");
  EXPECT_NE(refusal_of("--b0und\r\n" + std::string(20000, 'x')), "");
}

TEST(Multipart, ALinesLengthIsBoundedWhereverItIsCut) {
  const auto body = [](size_t spaces) {
    return "--b0und" + std::string(spaces, ' ') + "\r\n\r\nx\r\n--b0und--";
  };
  for (const size_t step : {size_t{1}, size_t{4000}, SIZE_MAX}) {
    EXPECT_EQ(parts_of(body(8192), step), (std::vector<Read>{{"", "-", "x"}})) << step;
    EXPECT_THROW(parts_of(body(8193), step), ApiError) << step;
  }
}

TEST(Multipart, BoundariesComeFromTheContentType) {
  EXPECT_EQ(boundary_of("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(boundary_of("Multipart/Form-Data ; charset=utf-8; Boundary=\"a b\""), "a b");
  for (const char* none : {"", "multipart/form-data", "multipart/mixed; boundary=a",
                           "multipart/form-data; boundary=", "multipart/form-data; boundary=\"a"})
    EXPECT_EQ(boundary_of(none), std::nullopt) << none;
  EXPECT_EQ(boundary_of("multipart/form-data; boundary=" + std::string(71, 'a')), std::nullopt);
}

}  // namespace
}  // namespace isogate::front::e2b
