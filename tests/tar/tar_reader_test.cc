// TarReader reads what tar(1), Python and TarWriter write, and nothing ambiguous.
#include "lib/tar/tar_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "lib/tar/tar_header.h"
#include "lib/tar/tar_writer.h"
#include "tests/support/program.h"

namespace isogate {
namespace {

using test::TemporaryDirectory;
using Kind = TarMember::Kind;

struct Found {
  TarMember member;
  std::string content;
};

struct Outcome {
  std::vector<Found> members;
  std::string problem;  // empty: the archive is complete
};

// In pieces of `step` bytes.
Outcome read(std::string_view archive, size_t step = SIZE_MAX) {
  Outcome outcome;
  TarReader reader;
  while (!archive.empty()) {
    std::string_view piece = archive.substr(0, step);
    archive.remove_prefix(piece.size());
    for (;;) {
      const auto next = reader.next(piece);
      if (!next) {
        outcome.problem = next.error().message;
        return outcome;
      }
      if (*next == TarReader::Step::kMore) break;
      if (*next == TarReader::Step::kMember) outcome.members.push_back({reader.member(), {}});
      if (*next == TarReader::Step::kContent) outcome.members.back().content += reader.content();
    }
  }
  if (auto whole = reader.finish(); !whole) outcome.problem = whole.error().message;
  return outcome;
}

std::string written(const std::function<void(TarWriter&)>& fill) {
  std::string bytes;
  TarWriter writer([&bytes](std::string_view piece) { bytes += piece; });
  fill(writer);
  writer.finish();
  return bytes;
}

// A header as a hostile sender would make it, with a valid checksum.
std::string header(char type, const std::string& name, const std::string& size = "00000000000") {
  std::string block(kTarBlock, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  block.replace(124, size.size(), size);
  block.replace(136, 11, "00000000000");
  block[156] = type;
  block.replace(257, 8,
                std::string("ustar\0"
                            "00",
                            8));
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[16];
  std::snprintf(text, sizeof text, "%06o", sum);
  block.replace(148, 7, std::string(text, 7));
  return block;
}

std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  return bytes;
}

std::string octal(size_t number) {
  char text[16];
  std::snprintf(text, sizeof text, "%011zo", number);
  return text;
}

std::string pax(const std::string& records, char type = 'x') {
  return header(type, "pax", octal(records.size())) + padded(records);
}

const std::string kEnd(2 * kTarBlock, '\0');

TEST(TarReader, ReadsWhatTarWriterWritesInPiecesOfAnySize) {
  const std::string odd = "odd\n\x01\xff name", deep = std::string(300, 'd') + "/" + std::string(200, 'f');
  const std::string archive = written([&](TarWriter& tar) {
    tar.directory({"dir", 0750, 0, 0, 1'700'000'000});
    tar.file({"dir/" + odd, 0640, 0, 0, 5}, std::string(1000, 'x'));
    tar.file({deep, 0755, 0, 0, -86'400}, "deep");
    tar.file({"empty", 0600}, "");
    tar.symlink({"link"}, deep);
    tar.directory({.name = "./", .pax = pax_record("ISOGATE.skipped", "{}")});
  });
  for (const size_t step : {size_t{1}, size_t{7}, size_t{512}, size_t{100'000}}) {
    const Outcome got = read(archive, step);
    EXPECT_EQ(got.problem, "");
    ASSERT_EQ(got.members.size(), 6u);
    EXPECT_EQ(got.members[0].member.kind, Kind::kDirectory);
    EXPECT_EQ(got.members[0].member.name, "dir/");
    EXPECT_EQ(got.members[0].member.mode, 0750u);
    EXPECT_EQ(got.members[0].member.mtime, 1'700'000'000);
    EXPECT_EQ(got.members[1].member.name, "dir/" + odd);
    EXPECT_EQ(got.members[1].content, std::string(1000, 'x'));
    EXPECT_EQ(got.members[2].member.name, deep);
    EXPECT_EQ(got.members[2].member.mtime, -86'400);
    EXPECT_EQ(got.members[2].content, "deep");
    EXPECT_EQ(got.members[3].member.size, 0u);
    EXPECT_EQ(got.members[4].member.kind, Kind::kSymlink);
    EXPECT_EQ(got.members[4].member.target, deep);
    EXPECT_EQ(got.members[4].member.skipped, "");
    EXPECT_EQ(got.members[5].member.skipped, "{}");
  }
}

TEST(TarReader, ReadsEveryFormatOfTar) {
  TemporaryDirectory from;
  const std::string name = std::string(120, 'n'), target(150, 't');
  from.file(name, "content", 0640);
  from.file("short", std::string(3000, 's'));
  ASSERT_EQ(::symlink(target.c_str(), (from.path() + "/link").c_str()), 0);
  for (const char* format : {"gnu", "oldgnu", "pax", "ustar", "v7"}) {
    const bool is_short = std::string(format) == "ustar" || std::string(format) == "v7";
    std::vector<std::string> command = {"tar", "--format", format, "-cf", "-", "-C", from.path(), "short"};
    if (!is_short) command.insert(command.end(), {name, "link"});
    const auto archive = test::run_program(command);
    ASSERT_EQ(archive.exit_code, 0) << archive.err;
    const Outcome got = read(archive.out, 100);
    EXPECT_EQ(got.problem, "") << format;
    ASSERT_EQ(got.members.size(), is_short ? 1u : 3u) << format;
    EXPECT_EQ(got.members[0].content, std::string(3000, 's')) << format;
    if (is_short) continue;
    EXPECT_EQ(got.members[1].member.name, name) << format;
    EXPECT_EQ(got.members[1].member.mode, 0640u) << format;
    EXPECT_EQ(got.members[1].content, "content") << format;
    EXPECT_EQ(got.members[2].member.target, target) << format;
  }
}

TEST(TarReader, NumbersBeyondOctalAreRead) {
  std::string big = header('0', "big");
  const std::string size("\x80\0\0\0\0\0\0\3\0\0\0\0", 12);  // 12 GiB
  big.replace(124, 12, size);
  unsigned sum = 8 * ' ';
  for (size_t i = 0; i < big.size(); ++i)
    if (i < 148 || i >= 156) sum += static_cast<unsigned char>(big[i]);
  char text[16];
  std::snprintf(text, sizeof text, "%06o", sum);
  big.replace(148, 7, std::string(text, 7));
  const Outcome got = read(big);
  ASSERT_EQ(got.members.size(), 1u) << got.problem;
  EXPECT_EQ(got.members[0].member.size, 12ull << 30);
  EXPECT_NE(got.problem.find("cut off inside `big`"), std::string::npos) << got.problem;
}

TEST(TarReader, HardLinksDevicesAndSparseFilesAreNamed) {
  const auto kind_of = [](const std::string& block) {
    const Outcome got = read(block + kEnd);
    EXPECT_EQ(got.problem, "");
    return got.members.empty() ? "nothing" : got.members[0].member.kind_text();
  };
  EXPECT_EQ(kind_of(header('1', "a")), "a hard link");
  EXPECT_EQ(kind_of(header('3', "a")), "a device");
  EXPECT_EQ(kind_of(header('4', "a")), "a device");
  EXPECT_EQ(kind_of(header('6', "a")), "a FIFO");
  EXPECT_EQ(kind_of(header('S', "a")), "a sparse file");
  EXPECT_EQ(kind_of(header('Q', "a")), "of the unknown type `Q`");
  EXPECT_EQ(kind_of(pax(pax_record("GNU.sparse.major", "1")) + header('0', "a")), "a sparse file");
}

TEST(TarReader, ACutIsNoEnd) {
  const std::string archive = written([](TarWriter& tar) {
    tar.file({std::string(200, 'n')}, std::string(700, 'x'));
    tar.directory({"d"});
  });
  const size_t end = archive.size() - 2 * kTarBlock;
  for (size_t size = 0; size < end + kTarBlock; size += 64)
    EXPECT_NE(read(std::string_view(archive).substr(0, size)).problem, "") << size;
  EXPECT_EQ(read(std::string_view(archive).substr(0, end + kTarBlock)).problem, "");
  EXPECT_EQ(read(archive + std::string(9000, '\0')).problem, "");
  EXPECT_NE(read(archive + "x").problem.find("bytes after its end"), std::string::npos);
  EXPECT_NE(read(archive + archive).problem, "") << "a second archive would be lost";
}

TEST(TarReader, WhatIsUnclearIsRefused) {
  const std::string good = header('0', "name");
  const std::pair<std::string, const char*> cases[] = {
      {"\x1f\x8b" + std::string(510, 'z'), "compressed with gzip"},
      {std::string(512, 'z'), "no tar"},
      {header('0', "name", "0000000000x"), "no valid size"},
      {header('0', "name", "-0000000001"), "no valid size"},
      {header('x', "pax", "00000777777"), "an extended header is over"},
      {pax("5 a=b\n") + good, "no valid length"},
      {pax("99 a=b\n") + good, "no valid length"},
      {pax("7 path\n") + good, "has no name"},
      {pax(pax_record("path", std::string("a\0b", 3))) + good, "holds a NUL"},
      {pax(pax_record("size", "-1")) + good, "no number"},
      {pax(pax_record("size", "18446744073709551615")) + good, "8 EiB"},
      {pax(pax_record("mtime", "soon")) + good, "no time"},
      {pax(pax_record("path", "x"), 'g') + good, "global header"},
      {pax(pax_record("path", "x")), "no member"},
  };
  EXPECT_NE(read("\x1f\x8b" + std::string(90, 'z')).problem.find("compressed with gzip"), std::string::npos);
  for (const auto& [bytes, problem] : cases) {
    const std::string got = read(bytes + kEnd).problem;
    EXPECT_NE(got.find(problem), std::string::npos) << problem << ": " << got;
  }
  EXPECT_EQ(read(pax(pax_record("comment", "a commit"), 'g') + good + kEnd).problem, "");
}

}  // namespace
}  // namespace isogate
