#include "tests/framing/framing.h"

namespace isogate::test {
namespace {

using namespace std::string_literals;

// The head of an upload, up to where its framing begins.
const std::string kPut =
    "PUT /workspace/files/AGENT/target HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer KEY\r\n";
const std::string kChunked = kPut + "Transfer-Encoding: chunked\r\n\r\n";
const std::string kGet = "GET /livez HTTP/1.1\r\nHost: gw\r\n";

std::string many_headers(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += "X-" + std::to_string(i) + ": y\r\n";
  return text;
}

const Row kHostile[] = {
    // Two lengths.
    {"length_and_chunked", kPut + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
    {"chunked_and_length", kPut + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"},
    {"two_different_lengths", kPut + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd"},
    {"two_equal_lengths", kPut + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"},
    {"two_equal_lengths_in_one_header", kPut + "Content-Length: 4, 4\r\n\r\nabcd"},
    {"two_lengths_in_one_header", kPut + "Content-Length: 4, 5\r\n\r\nabcd"},
    {"lengths_of_other_case", kPut + "content-length: 4\r\nCONTENT-LENGTH: 5\r\n\r\nabcd"},
    // Invalid lengths.
    {"negative_length", kPut + "Content-Length: -4\r\n\r\nabcd"},
    {"signed_length", kPut + "Content-Length: +4\r\n\r\nabcd"},
    {"hexadecimal_length", kPut + "Content-Length: 0x4\r\n\r\nabcd"},
    {"empty_length", kPut + "Content-Length:\r\n\r\nabcd"},
    {"fractional_length", kPut + "Content-Length: 4.0\r\n\r\nabcd"},
    {"exponent_length", kPut + "Content-Length: 4e0\r\n\r\nabcd"},
    {"length_with_a_blank_inside", kPut + "Content-Length: 4 4\r\n\r\nabcd"},
    {"length_of_2_to_64", kPut + "Content-Length: 18446744073709551616\r\n\r\nabcd"},
    {"length_of_2_to_64_and_4", kPut + "Content-Length: 18446744073709551620\r\n\r\nabcd"},
    {"length_of_2_to_63", kPut + "Content-Length: 9223372036854775808\r\n\r\nabcd"},
    {"length_of_thirty_digits", kPut + "Content-Length: 000000000000000000000000000004\r\n\r\nabcd"},
    // Transfer codings.
    {"unknown_coding", kPut + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
    {"chunked_twice", kPut + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"},
    {"gzip_then_chunked", kPut + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
    {"chunked_then_identity", kPut + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
    {"identity", kPut + "Transfer-Encoding: identity\r\n\r\n"},
    {"two_codings", kPut + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"},
    {"two_equal_codings", kPut + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
    {"quoted_coding", kPut + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"},
    {"coding_with_a_vertical_tab", kPut + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n"},
    {"empty_coding", kPut + "Transfer-Encoding:\r\n\r\n0\r\n\r\n"},
    {"coding_with_a_parameter", kPut + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"},
    {"chunked_in_http_1_0",
     "PUT /workspace/files/AGENT/target HTTP/1.0\r\nAuthorization: Bearer KEY\r\n"
     "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
    // Chunks.
    {"chunk_size_that_is_none", kChunked + "zz\r\nab\r\n0\r\n\r\n"},
    {"chunk_without_a_size", kChunked + "\r\nab\r\n0\r\n\r\n"},
    {"negative_chunk", kChunked + "-2\r\nab\r\n0\r\n\r\n"},
    {"chunk_size_with_0x", kChunked + "0x2\r\nab\r\n0\r\n\r\n"},
    {"chunk_size_with_a_plus", kChunked + "+2\r\nab\r\n0\r\n\r\n"},
    {"blank_before_the_chunk_size", kChunked + " 2\r\nab\r\n0\r\n\r\n"},
    {"blank_after_the_chunk_size", kChunked + "2 \r\nab\r\n0\r\n\r\n"},
    {"chunk_size_of_17_digits", kChunked + "10000000000000002\r\nab\r\n0\r\n\r\n"},
    {"chunk_size_of_16_digits", kChunked + "ffffffffffffffff\r\nab\r\n0\r\n\r\n"},
    {"chunk_longer_than_its_size", kChunked + "2\r\nabc\r\n0\r\n\r\n"},
    {"chunk_shorter_than_its_size", kChunked + "4\r\nab\r\n0\r\n\r\n"},
    {"chunk_size_with_a_bare_line_feed", kChunked + "2\nab\r\n0\r\n\r\n"},
    {"chunk_with_a_bare_line_feed", kChunked + "2\r\nab\n0\r\n\r\n"},
    {"last_chunk_with_a_bare_line_feed", kChunked + "2\r\nab\r\n0\n\n"},
    {"chunk_size_with_a_bare_carriage_return", kChunked + "2\rXab\r\n0\r\n\r\n"},
    {"chunk_extension_with_a_bare_line_feed", kChunked + "2;a\nab\r\n0\r\n\r\n"},
    {"chunk_extension_with_a_bare_carriage_return", kChunked + "2;a\rb\r\nab\r\n0\r\n\r\n"},
    {"chunk_extension_with_a_nul", kChunked + "2;a\0b\r\nab\r\n0\r\n\r\n"s},
    {"overlong_chunk_extension", kChunked + "2;" + std::string(300, 'x') + "\r\nab\r\n0\r\n\r\n"},
    {"endless_chunk_extension", kChunked + "2;" + std::string(100000, 'x')},
    {"trailer_with_a_length", kChunked + "2\r\nab\r\n0\r\nContent-Length: 9\r\n\r\n"},
    {"trailer_with_a_key", kChunked + "2\r\nab\r\n0\r\nAuthorization: Bearer x\r\n\r\n"},
    {"folded_trailer", kChunked + "2\r\nab\r\n0\r\nX: y\r\n z\r\n\r\n"},
    {"trailer_without_a_colon", kChunked + "2\r\nab\r\n0\r\nPUT /x HTTP/1.1\r\n\r\n"},
    {"trailer_with_a_bare_line_feed", kChunked + "2\r\nab\r\n0\r\nX: y\n\r\n"},
    {"overlong_trailer", kChunked + "2\r\nab\r\n0\r\nX: " + std::string(5000, 'y') + "\r\n\r\n"},
    // Lines.
    {"folded_header", kGet + "X-Fold: a\r\n b\r\n\r\n"},
    {"folded_coding", kPut + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
    {"first_header_folded", "GET /livez HTTP/1.1\r\n Host: gw\r\nHost: gw\r\n\r\n"},
    {"blank_before_a_colon", kPut + "Content-Length : 4\r\n\r\nabcd"},
    {"tab_before_a_colon", kPut + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"},
    {"header_without_a_colon", kGet + "Nothing\r\n\r\n"},
    {"header_without_a_name", kGet + ": x\r\n\r\n"},
    {"name_with_a_blank", kGet + "A b: x\r\n\r\n"},
    {"name_with_a_control_character", kPut + "Content\x01-Length: 4\r\n\r\nabcd"},
    {"name_beyond_ascii", kGet + "Caf\xc3\xa9: x\r\n\r\n"},
    {"bare_line_feeds", "GET /livez HTTP/1.1\nHost: gw\n\n"},
    {"one_bare_line_feed", "GET /livez HTTP/1.1\r\nHost: gw\nX: y\r\n\r\n"},
    {"end_with_a_bare_line_feed", "GET /livez HTTP/1.1\r\nHost: gw\r\n\n"},
    {"bare_carriage_return_in_a_value", kGet + "X: a\rContent-Length: 4\r\n\r\n"},
    {"nul_in_a_value", kGet + "X: a\0b\r\n\r\n"s},
    {"empty_line_in_front", "\r\n" + kGet + "\r\n"},
    {"blank_line_in_front", " \r\n" + kGet + "\r\n"},
    // Request lines.
    {"two_blanks_in_the_request_line", "GET  /livez HTTP/1.1\r\nHost: gw\r\n\r\n"},
    {"tab_in_the_request_line", "GET\t/livez HTTP/1.1\r\nHost: gw\r\n\r\n"},
    {"blank_in_front_of_the_method", " GET /livez HTTP/1.1\r\nHost: gw\r\n\r\n"},
    {"blank_in_the_target", "GET /livez x HTTP/1.1\r\nHost: gw\r\n\r\n"},
    {"blank_behind_the_version", "GET /livez HTTP/1.1 \r\nHost: gw\r\n\r\n"},
    {"no_version", "GET /livez\r\nHost: gw\r\n\r\n"},
    {"http_0_9", "GET /livez\r\n\r\n"},
    {"http_1_2", "GET /livez HTTP/1.2\r\nHost: gw\r\n\r\n"},
    {"http_2_0", "GET /livez HTTP/2.0\r\nHost: gw\r\n\r\n"},
    {"http_1_10", "GET /livez HTTP/1.10\r\nHost: gw\r\n\r\n"},
    {"http_in_small_letters", "GET /livez http/1.1\r\nHost: gw\r\n\r\n"},
    {"http_2_preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
    {"nul_in_the_target", "GET /live\0z HTTP/1.1\r\nHost: gw\r\n\r\n"s},
    {"tls_hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s},
    {"a_method_that_is_no_token", "G{T /livez HTTP/1.1\r\nHost: gw\r\n\r\n"},
    // Hosts.
    {"no_host", "GET /livez HTTP/1.1\r\n\r\n"},
    {"two_hosts", kGet + "Host: other\r\n\r\n"},
    {"two_equal_hosts", kGet + "Host: gw\r\n\r\n"},
    {"two_hosts_in_one_header", "GET /livez HTTP/1.1\r\nHost: gw, other\r\n\r\n"},
    {"host_with_a_path", "GET /livez HTTP/1.1\r\nHost: gw/x\r\n\r\n"},
    {"host_with_a_user", "GET /livez HTTP/1.1\r\nHost: me@gw\r\n\r\n"},
    {"two_hosts_in_http_1_0", "GET /livez HTTP/1.0\r\nHost: gw\r\nHost: gw\r\n\r\n"},
    // Headers that decide something, twice.
    {"two_keys", kGet + "Authorization: Bearer a\r\nAuthorization: Bearer KEY\r\n\r\n"},
    {"two_keys_of_e2b", kGet + "X-API-Key: KEY\r\nX-API-Key: KEY\r\n\r\n"},
    {"two_tokens_of_e2b", kGet + "X-Access-Token: a\r\nX-Access-Token: b\r\n\r\n"},
    {"two_traffic_tokens", kGet + "E2b-Traffic-Access-Token: a\r\nE2b-Traffic-Access-Token: b\r\n\r\n"},
    {"two_sandboxes_of_e2b", kGet + "E2b-Sandbox-Id: a\r\nE2b-Sandbox-Id: b\r\n\r\n"},
    {"two_ports_of_e2b", kGet + "E2b-Sandbox-Port: 80\r\nE2b-Sandbox-Port: 81\r\n\r\n"},
    {"two_agents", kGet + "X-Agent-Id: a\r\nX-Agent-Id: b\r\n\r\n"},
    {"two_types", kGet + "Content-Type: text/plain\r\nContent-Type: application/json\r\n\r\n"},
    {"two_versions", kGet + "If-Range: \"a\"\r\nIf-Range: \"b\"\r\n\r\n"},
    // Too much.
    {"header_of_64_kib", kGet + "X: " + std::string(65536, 'h') + "\r\n\r\n"},
    {"target_of_64_kib", "GET /" + std::string(65536, 'u') + " HTTP/1.1\r\nHost: gw\r\n\r\n"},
    {"a_thousand_headers", kGet + many_headers(1000) + "\r\n"},
    {"a_hundred_and_one_headers", kGet + many_headers(100) + "\r\n"},
};

// A strict parser must still serve: each of these is one request, and the one after it is another.
const Row kFine[] = {
    {"length", kPut + "Content-Length: 4\r\n\r\nabcd", 200},
    {"length_with_zeros_in_front", kPut + "Content-Length: 0004\r\n\r\nabcd", 200},
    {"length_with_blanks_around", kPut + "Content-Length: \t 4 \r\n\r\nabcd", 200},
    {"chunks", kChunked + "2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n", 200},
    {"chunk_sizes_in_any_case",
     kPut + "transfer-encoding: Chunked\r\n\r\n00000A\r\n0123456789\r\n000\r\n\r\n", 200},
    {"short_chunk_extensions", kChunked + "4;name=\"value\"\r\nabcd\r\n0;x\r\n\r\n", 200},
    {"trailer", kChunked + "2\r\nab\r\n0\r\nX-Sum: y\r\n\r\n", 200},
    {"empty_chunked_body", kChunked + "0\r\n\r\n", 200},
    {"hundred_headers", kGet + many_headers(99) + "\r\n", 200},
    {"host_with_port", "GET /livez HTTP/1.1\r\nHost: [::1]:9090\r\n\r\n", 200},
    {"percent_escapes", "GET /livez?a=%00 HTTP/1.1\r\nHost: gw\r\n\r\n", 200},
};

}  // namespace

std::span<const Row> hostile_rows() { return kHostile; }
std::span<const Row> fine_rows() { return kFine; }
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

}  // namespace isogate::test
