// What an SDK sends to a sandbox besides files: a stream's envelopes against a simple parser of the same
// bytes, headers, names and paths; and the record of a sandbox, however damaged.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gateway/front/api/json_in.h"
#include "gateway/front/api/port_proxy.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/e2b/envelopes.h"
#include "gateway/front/e2b/paths.h"
#include "gateway/front/e2b/record.h"
#include "gateway/front/e2b/rpc.h"
#include "gateway/front/e2b/sandbox.h"
#include "gateway/front/http/http_text.h"
#include "isogate/backend.h"
#include "tests/fuzz/e2b_pieces.h"

namespace {

namespace asio = boost::asio;
using namespace isogate::front;
using namespace isogate::front::e2b;
using nlohmann::json;

asio::awaitable<json> parse_at_once(std::string text) { co_return parse_body(text, kAnyField); }

struct Stream {
  std::vector<json> messages;
  std::optional<Code> refused;
};

std::optional<json> parsed(std::string_view text) {
  try {
    return parse_body(text, kAnyField);
  } catch (const ApiError&) {
    return std::nullopt;
  }
}

Stream expected_of(std::string_view bytes, uint64_t most) {
  Stream stream;
  const auto refuse = [&](Code code) {
    stream.refused = code;
    return stream;
  };
  while (!bytes.empty()) {
    if (bytes.size() < 5) return refuse(Code::kInvalidRequest);
    const auto at = [&](size_t i) { return uint64_t{static_cast<unsigned char>(bytes[i])}; };
    const uint64_t size = at(1) << 24 | at(2) << 16 | at(3) << 8 | at(4);
    if (at(0) == 1) return refuse(Code::kUnsupported);
    if (at(0) != 0) return refuse(Code::kInvalidRequest);
    if (size > most) return refuse(Code::kFileTooLarge);
    bytes.remove_prefix(5);
    if (bytes.size() < size) return refuse(Code::kInvalidRequest);
    auto message = parsed(bytes.substr(0, size));
    if (!message) return refuse(Code::kInvalidRequest);
    stream.messages.push_back(std::move(*message));
    bytes.remove_prefix(size);
  }
  return stream;
}

void check_envelopes(std::string_view bytes, std::string_view sizes, uint64_t most, uint64_t budget_bytes) {
  ByteBudget budget;
  budget.set_limits(budget_bytes, budget_bytes);
  ByteShare share(budget, "tenant");
  Pieces pieces(bytes, sizes);
  Stream seen;
  const auto work = [&]() -> asio::awaitable<void> {
    MessageReader reader(pieces.reader(), most, share, parse_at_once);
    while (auto message = co_await reader.next()) {
      require(share.bytes() == kept_bytes(*message));
      seen.messages.push_back(std::move(*message));
    }
    require(pieces.at_end() && share.bytes() == 0);
  };
  try {
    run(work());
  } catch (const ApiError& error) {
    require(!error.message.empty());
    seen.refused = error.code;
  }
  require(pieces.most_asked() <= std::min<uint64_t>(5 + most, 65536));
  require(budget.held() <= budget_bytes);
  const Stream expected = expected_of(bytes, most);
  if (seen.refused == Code::kRateLimited) {
    require(budget_bytes != UINT64_MAX && seen.messages.size() <= expected.messages.size());
    return;
  }
  require(seen.refused == expected.refused && seen.messages == expected.messages);
}

void check_only(std::string_view bytes, std::string_view sizes, uint64_t most) {
  ByteBudget budget;
  ByteShare share(budget, "tenant");
  Pieces pieces(bytes, sizes);
  const Stream expected = expected_of(bytes, most);
  bool one = false;
  const auto work = [&]() -> asio::awaitable<void> {
    MessageReader reader(pieces.reader(), most, share, parse_at_once);
    const json message = co_await reader.only();
    require(pieces.at_end() && share.bytes() == kept_bytes(message));
    require(expected.messages.size() == 1 && message == expected.messages.front());
    one = true;
  };
  try {
    run(work());
  } catch (const ApiError& error) {
    require(!error.message.empty());
  }
  require(one == (!expected.refused && expected.messages.size() == 1));
}

void any_stream(std::string_view bytes, std::string_view sizes, uint64_t most, uint64_t budget) {
  check_envelopes(bytes, {}, most, UINT64_MAX);
  check_envelopes(bytes, sizes, most, UINT64_MAX);
  check_envelopes(bytes, sizes, most, budget);
  check_only(bytes, sizes, most);
}

std::string stream_of_lines(std::string_view text) {
  std::string bytes;
  while (!text.empty()) bytes += envelope(0, take_line(text));
  return bytes;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void check_times(std::string_view text) {
  const auto keepalive = parse_keepalive(text);
  require(keepalive >= std::chrono::seconds(1) && keepalive <= std::chrono::seconds(90));
  const std::string whole(text.substr(0, text.find('.')));
  try {
    const auto timeout = parse_timeout(text);
    require(timeout.count() >= 0 && timeout.count() <= 9999999999);
    require(is_number(whole) && std::stoull(whole) == static_cast<uint64_t>(timeout.count()));
  } catch (const ApiError& error) {
    require(error.code == Code::kInvalidRequest);
    require(!is_number(whole) || whole.size() > 10);
  }
}

void check_names(std::string_view host, std::string_view domain) {
  const std::string_view own = host.substr(0, host.find(':'));
  if (const auto found = port_host(host, domain)) {
    require(!domain.empty() && found->port.find('-') == std::string_view::npos);
    require(equal_no_case(std::string(found->name) + "." + std::string(domain), own));
    const bool dashed = found->name.find('-') != std::string_view::npos;
    require(dashed || (found->port.empty() && found->agent.empty()));
    require(!dashed || std::string(found->port) + "-" + std::string(found->agent) == found->name);
  }
  if (!domain.empty() && domain.find(':') == std::string_view::npos) {
    const std::string text = "80-" + std::string(own) + "." + std::string(domain) + ":443";
    const auto made = port_host(text, domain);
    require(made && made->port == "80" && made->agent == own);
  }
  const std::string sandbox = sandbox_of_token(host);
  require(sandbox.empty() || (host.size() > 2 * sandbox.size() && host.starts_with(sandbox)));
}

bool is_clean(std::string_view path) {
  if (path == "/") return true;
  if (!path.starts_with('/') || path.ends_with('/')) return false;
  for (const std::string_view bad : {"//", "/./", "/../"})
    if ((std::string(path) + "/").find(bad) != std::string::npos) return false;
  return true;
}

void check_paths(const std::string& home, std::string_view path) {
  const Place place = place_of(path, home);
  require(is_clean(place.shown));
  if (place.scope == ISOGATE_SCOPE_WORKSPACE) {
    require(!place.path.empty() && !place.path.starts_with('/'));
    require(place_of(place.path, home).shown == place.shown || place.path.starts_with('~'));
    require(place_of(below("~", place.path), home).shown == place.shown);
  } else {
    require(place.scope == ISOGATE_SCOPE_SANDBOX && place.path == place.shown);
  }
  const Place again = place_of(place.shown, home);
  require(again.scope == place.scope && again.path == place.path && again.shown == place.shown);
  require(place_of(below("~", path), home).shown == place_of(below(home, path), home).shown);
}

void check_record(const std::string& text) {
  const auto record = record_in(text);
  if (!record) return;
  const std::string kept = record_text(*record);
  const auto again = record_in(kept);
  require(again.has_value());
  require(again->template_id == record->template_id && again->token == record->token &&
          again->home == record->home && again->metadata == record->metadata && again->env == record->env &&
          again->started_ms == record->started_ms);
  require(record_text(*again) == kept);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 6) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const uint64_t most = 20 * uint64_t{data[1]}, budget = 20 * uint64_t{data[2]};
  const std::string_view sizes = text.substr(3, 3);
  std::string_view rest = text.substr(6);
  switch (data[0] % 6) {
    case 0:
      any_stream(rest, sizes, most, budget);
      break;
    case 1:
      any_stream(stream_of_lines(rest), sizes, most, budget);
      break;
    case 2:
      check_times(rest);
      break;
    case 3: {
      const std::string_view host = take_line(rest);
      check_names(host, rest);
      break;
    }
    case 4: {
      const std::string home = "/" + std::string(take_line(rest));
      check_paths(home, rest);
      break;
    }
    default:
      check_record(std::string(rest));
  }
  return 0;
}
