// Responses of an Engine: HTTP however it is split, the JSON in it, and what the backend reads from it:
// events, the Engine itself, a container, an error.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "plugins/docker/client/engine.h"
#include "plugins/docker/container/container_state.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;
using namespace isogate::docker;

bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= ' '; });
}

const Owner kOwner{"instance", "backend", "isg-sandbox"};

void look_at_container(const Json& answer) {
  try {
    const ContainerState state = state_of(answer, kOwner);
    require(state.exists && !(state.running && state.paused) && !state.shape.empty());
    require(answer.at("Id") == state.id &&
            state.running == (answer.at("State").at("Running") && !state.paused));
    require(answer.at("State").value("Pid", Json(0)) == Json(state.pid));
    require(answer.at("State").value("ExitCode", Json(0)) == Json(state.exit_code));
    require(state.ours == carries(answer.at("Config").at("Labels"), kOwner));
    // A container with another mount or other isolation is another container.
    Json other = answer;
    other["HostConfig"] = {{"Privileged", true}, {"was", answer.value("HostConfig", Json())}};
    require(state_of(other, kOwner).shape != state.shape);
    other = answer;
    other["Mounts"] = answer.value("Mounts", Json::array());
    other["Mounts"].push_back("one more");
    require(state_of(other, kOwner).shape != state.shape);
    other = answer;
    other["Config"]["Labels"][kLabelSandbox] = "another";
    require(!state_of(other, kOwner).ours);
  } catch (const sdk::Error& error) {
    require(error.status() == ISOGATE_UNAVAILABLE);
  }
}

void look_at_rows(const Json& answer) {
  const std::vector<LabelFilter> labels = {{kLabelInstance, "instance"}, {kLabelRole, ""}};
  for (const Json& row : carrying(answer, labels)) {
    require(row.at("Labels").at(kLabelInstance) == "instance");
    require(row.at("Labels").at(kLabelRole).is_string());
  }
}

void look_at_json(const std::string& text) {
  try {
    const Json answer = parse_answer(text, "ask");
    require(answer.is_structured() && Json::parse(answer.dump()) == answer);
    const EngineInfo info = info_of(answer);
    require(info.processors >= 0);
    look_at_container(answer);
    look_at_rows(answer);
  } catch (const NetError& error) {
    require(error.status() == ISOGATE_UNAVAILABLE);
  }
}

void look_at_error(const std::string& body) {
  for (const int status : {200, 304, 400, 403, 404, 409, 429, 500, 501, 599}) {
    const NetError error = refusal("ask", status, body);
    require(error.status() != ISOGATE_OK && error.http_status() == status && !error.maybe_done());
    require(is_printable(std::string(error.what())) && std::strlen(error.what()) < 500);
    require((error.status() == ISOGATE_NOT_FOUND) == (status == 404));
  }
}

// Each event in a response's body, until it ends or breaks.
std::string events(const std::string& bytes, size_t piece) {
  const Budget budget(std::chrono::seconds(60));
  auto connection = std::make_unique<HttpConnection>(
      std::make_unique<test::Scripted>(bytes, std::max<size_t>(piece, 1)), "docker", "the Engine");
  std::string all;
  try {
    connection->exchange({"GET", "/events", "", {}}, budget);
    EngineEvents stream(std::move(connection));
    for (;;) {
      const Json event = stream.next(budget);
      require(event.is_object());
      all += event.dump() + "\n";
    }
  } catch (const NetError& error) {
    require(error.status() == ISOGATE_UNAVAILABLE);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = data[0], cut = data[1] * 7u + piece;
  const auto answered = test::look_at_answer(bytes, piece, cut);
  require(events(bytes, 1) == events(bytes, bytes.size()));
  for (const std::string& text : {bytes, answered.body}) {
    look_at_json(text);
    look_at_error(text);
    try {
      const auto version = parse_api_version(text);
      require(parse_api_version(std::to_string(version.first) + "." + std::to_string(version.second)) ==
              version);
    } catch (const NetError&) {
    }
  }
  return 0;
}
