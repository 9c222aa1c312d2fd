// The gateway a command talks to: found, with its key; its refusals reported to a person or a program.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gateway/cli/http_client.h"
#include "gateway/cli/options.h"

namespace isogate::cli {

// --url or ISOGATE_URL; else <state-dir>/isogate.sock, and nothing else where --state-dir or
// ISOGATE_STATE_DIR names that directory; else, if no gateway answers there, 127.0.0.1:9090. The key:
// --key-file, ISOGATE_KEY, else <state-dir>/local.key, which is sent only to this machine, if the URL was
// named, and not over a Unix socket: there the gateway knows its peer, and a wrong key would be refused. Nor
// beside a client certificate.
Result<HttpClient> find_gateway(const ClientOptions& options);

// As find_gateway, but by TCP only if that was named; nullopt if nothing was named and there is no state
// directory.
Result<std::optional<HttpClient>> find_running_gateway(const ClientOptions& options);

// A call that must succeed; a failure is reported.
struct Asked {
  int failed = 0;     // the exit code of a failure
  HttpAnswer answer;  // also a refusal
};
Asked ask(HttpClient& client, const HttpRequest& request, bool json);
// The gateway that find_gateway() finds.
Asked ask(const ClientOptions& options, const HttpRequest& request);
// Prints the answer's JSON if that was asked for, else shows its body to a person. Returns the exit code.
int ask_and_show(const ClientOptions& options, const HttpRequest& request,
                 const std::function<int(const std::string& body)>& show);

// kDone if an exec, as GET /execs/{exec_id} describes it, is of `agent`, or that is empty. Else it complains.
int check_agent(const nlohmann::json& exec, const std::string& agent);

// A POST with this body.
HttpRequest post(std::string target, const nlohmann::ordered_json& body);

// Reports JSON that breaks the contract. kGateway.
int makes_no_sense(const std::exception& error);

// The query of a target, "?name=value&…", from what is not empty.
class Query {
 public:
  Query& add(const char* name, const std::string& value);
  Query& flag(const char* name, bool set) { return add(name, set ? "true" : ""); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// /workspace/files/{agent_id}/{path}, with scope and user.
std::string raw_target(const FileOptions& options, Query query = {});

// The body of a call about a file: agent, path, scope and user.
nlohmann::ordered_json file_body(const FileOptions& options);

// A failure, for a person: the message and the remedy.
struct Explanation {
  std::string message;
  std::string advice;    // lines, indented by two except the first; may be empty
  bool refused = false;  // the gateway gave its reason
  [[nodiscard]] std::string in_one_line() const;
};
Explanation explain(const Error& error);
Explanation explain(const HttpAnswer& refusal);

// Prints the failure and the remedy to stderr, or with json one error object. Returns the exit code:
// kUsage if the caller can correct the request, else kGateway.
int report(const Error& error, bool json);

// The same, but kFailed for a failure that is not the gateway's: a file of this machine, stdout.
int report_local(const Error& error, bool json);

// As report() for a refusal. kFailed, or kGateway when the response breaks the contract.
int report_refusal(const HttpAnswer& answer, bool json);

}  // namespace isogate::cli
