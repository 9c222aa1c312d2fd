#include "tests/contract/contract.h"

namespace isogate::test {
namespace {

void bytes_that_are_not_text_come_as_base64(World& w) {
  const Json result = w.me.run("printf 'a\\377\\376\\n'; printf text >&2");
  EXPECT_EQ(result.at("stdout_encoding"), "base64");
  EXPECT_EQ(result.at("stderr_encoding"), "utf-8");
  EXPECT_EQ(bytes_of(result, "stdout"), "a\xff\xfe\n");
  EXPECT_EQ(result.at("stdout_bytes"), 4);
  EXPECT_EQ(result.at("stderr"), "text");
}

void all_256_bytes_come_as_they_were(World& w) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(bytes_of(w.me.run("cat", {{"stdin", base64(all)}, {"stdin_encoding", "base64"}}), "stdout"), all);
}

void nothing_is_trimmed_or_split(World& w) {
  for (const std::string& text : {std::string("  a \t\n\n"), std::string("\r\n\r"), std::string("no newline"),
                                  std::string("\xef\xbb\xbf"
                                              "bom"),
                                  std::string("nul\0in it", 9), std::string("\x1b[31mred\x1b[0m\x07"),
                                  std::string("\xe2\x80\xa8 \xc2\x85")}) {
    const Json result = w.me.run("cat", {{"stdin", base64(text)}, {"stdin_encoding", "base64"}});
    EXPECT_EQ(result.at("stdout_encoding"), "utf-8");
    EXPECT_EQ(result.at("stdout"), text);
  }
}

void stdout_and_stderr_stay_apart(World& w) {
  const Json result = w.me.run("for i in $(seq 200); do echo out $i; echo err $i >&2; done");
  std::string out, err;
  for (int i = 1; i <= 200; ++i)
    out += "out " + std::to_string(i) + "\n", err += "err " + std::to_string(i) + "\n";
  EXPECT_EQ(result.at("stdout"), out);
  EXPECT_EQ(result.at("stderr"), err);
}

void stderr_is_part_of_stdout_where_that_is_asked_for(World& w) {
  const Json more{{"merge_stderr", true}};
  const std::string command = "for i in $(seq 200); do echo out $i; echo err $i >&2; done; exit 3";
  if (!w.can("merge_stderr")) {
    EXPECT_TRUE(refused(w.me.exec(command, more), 501, "unsupported"));
    return;
  }
  std::string both;
  for (int i = 1; i <= 200; ++i) both += "out " + std::to_string(i) + "\nerr " + std::to_string(i) + "\n";
  const Json result = w.me.run(command, more);
  EXPECT_EQ(result.at("stdout"), both) << "in the order of the writes";
  EXPECT_EQ(result.at("stderr"), "");
  EXPECT_EQ(result.at("stdout_bytes"), both.size());
  EXPECT_EQ(result.at("stderr_bytes"), 0);
  EXPECT_EQ(result.at("exit_code"), 3);
  const auto events = ExecStream(w.me, {{"command", command}, {"merge_stderr", true}}).rest();
  EXPECT_EQ(data_of(events, "stdout"), both);
  EXPECT_EQ(data_of(events, "stderr"), "");
}

void a_cap_cuts_and_counts_and_lets_the_program_finish(World& w) {
  const Json result = w.me.run("head -c 300000 /dev/zero | tr '\\0' a; echo 12345 >&2; exit 6");
  EXPECT_EQ(result.at("stdout").get<std::string>(), std::string(131072, 'a')) << "the default cap";
  EXPECT_EQ(result.at("stdout_bytes"), 300000);
  EXPECT_EQ(result.at("stderr"), "12345\n");
  EXPECT_EQ(result.at("truncated"), true);
  EXPECT_EQ(result.at("exit_code"), 6);
  const Json exact = w.me.run("head -c 1000 /dev/zero", {{"max_output_bytes", 1000}});
  EXPECT_EQ(exact.at("truncated"), false);
  const Json none = w.me.run("echo hello", {{"max_output_bytes", 0}});
  EXPECT_EQ(none.at("stdout"), "");
  EXPECT_EQ(none.at("stdout_bytes"), 6);
  EXPECT_EQ(none.at("truncated"), true);
}

void a_cap_does_not_cut_a_character(World& w) {
  const Json result =
      w.me.run("for i in 1 2 3 4 5 6; do printf '\\303\\251'; done", {{"max_output_bytes", 5}});
  EXPECT_EQ(result.at("stdout_encoding"), "utf-8");
  EXPECT_EQ(result.at("stdout"), "éé");
  EXPECT_EQ(result.at("stdout_bytes"), 12);
  EXPECT_EQ(result.at("truncated"), true);
}

void a_larger_cap_carries_more(World& w) {
  const Json result = w.me.run("head -c 3000000 /dev/zero | tr '\\0' b", {{"max_output_bytes", 4000000}});
  EXPECT_EQ(result.at("stdout").get<std::string>(), std::string(3000000, 'b'));
  EXPECT_EQ(result.at("truncated"), false);
  EXPECT_TRUE(refused(w.me.exec("true", {{"max_output_bytes", 1ull << 40}}), 400, "invalid_request"));
}

// The producer is drained, not blocked, and nothing of it is kept.
void a_flood_is_counted_in_little_memory(World& w) {
  w.me.run("true");
  const pid_t front = front_of(w.gateway);
  const long before = resident_kib(front);
  const Json result =
      w.me.run("head -c 400000000 /dev/zero; head -c 50000000 /dev/zero >&2", {{"timeout_sec", 60}});
  EXPECT_EQ(result.at("stdout_bytes"), 400000000);
  EXPECT_EQ(result.at("stderr_bytes"), 50000000);
  EXPECT_EQ(result.at("exit_code"), 0);
  EXPECT_LT(resident_kib(front) - before, kib_bound(4096)) << "KiB more in the front";
}

void floods_of_one_stream_or_both_do_not_deadlock(World& w) {
  EXPECT_EQ(w.me.run("head -c 3000000 /dev/zero >&2").at("stderr_bytes"), 3000000);
  const Json both = w.me.run("head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait");
  EXPECT_EQ(both.at("stdout_bytes"), 3000000);
  EXPECT_EQ(both.at("stderr_bytes"), 3000000);
  const Json turns = w.me.run("for i in $(seq 3000); do printf o; printf e >&2; done");
  EXPECT_EQ(turns.at("stdout"), std::string(3000, 'o'));
  EXPECT_EQ(turns.at("stderr"), std::string(3000, 'e'));
}

const Case kOutputCases[] = {
    {"bytes_that_are_not_text_come_as_base64", 4, bytes_that_are_not_text_come_as_base64},
    {"all_256_bytes_come_as_they_were", 4, all_256_bytes_come_as_they_were},
    {"nothing_is_trimmed_or_split", 4, nothing_is_trimmed_or_split},
    {"stdout_and_stderr_stay_apart", 4, stdout_and_stderr_stay_apart},
    {"stderr_is_part_of_stdout_where_that_is_asked_for", 4, stderr_is_part_of_stdout_where_that_is_asked_for},
    {"a_cap_cuts_and_counts_and_lets_the_program_finish", 4,
     a_cap_cuts_and_counts_and_lets_the_program_finish},
    {"a_cap_does_not_cut_a_character", 4, a_cap_does_not_cut_a_character},
    {"a_larger_cap_carries_more", 4, a_larger_cap_carries_more},
    {"a_flood_is_counted_in_little_memory", 4, a_flood_is_counted_in_little_memory},
    {"floods_of_one_stream_or_both_do_not_deadlock", 4, floods_of_one_stream_or_both_do_not_deadlock},
};

}  // namespace

std::span<const Case> output_cases() { return kOutputCases; }

}  // namespace isogate::test
