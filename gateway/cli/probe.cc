// isogate probe
#include <nlohmann/json.hpp>

#include "gateway/cli/client.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/exit_code.h"
#include "gateway/cli/output.h"
#include "gateway/cli/probe_hosts.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string verdict_of(const front::Candidate& candidate) {
  if (!candidate.probe) return "down";
  if (candidate.probe->verdict == ISOGATE_PROBE_AVAILABLE) return "available";
  return candidate.probe->verdict == ISOGATE_PROBE_DEGRADED ? "degraded" : "unavailable";
}

std::string reason_of(const front::CandidateVerdict& verdict, bool chosen) {
  if (!verdict.eligible) return verdict.reason;
  return chosen ? "first eligible in the configured order"
                : "eligible, but another comes first in the configured order";
}

// One element of `backends`, as GET /backends has it.
Json describe(const ProbedBackend& backend, const front::CandidateVerdict& verdict, bool chosen) {
  const auto& probe = backend.candidate.probe;
  const auto& hello = backend.hello;
  uint32_t isolation = probe ? probe->isolation : hello ? hello->isolation : UINT32_MAX;
  uint32_t locality = probe ? probe->locality : hello ? hello->locality : 0;
  return {{"name", backend.config.name},
          {"plugin", hello ? hello->plugin_id : backend.config.plugin},
          {"version", hello ? hello->plugin_version : ""},
          {"verdict", verdict_of(backend.candidate)},
          {"isolation", front::isolation_name(isolation)},
          {"locality", front::locality_name(locality)},
          {"capabilities", front::capability_names(probe ? probe->capabilities : 0)},
          {"eligible", verdict.eligible},
          {"chosen", chosen},
          {"reason", reason_of(verdict, chosen)},
          {"detail", probe ? probe->detail : backend.candidate.reason},
          {"generation", 1},
          {"restarts", 0}};
}

Json report_of(const Config& config, const std::vector<ProbedBackend>& backends) {
  front::Policy policy{config.require_remote, config.min_isolation, config.allow_unisolated};
  std::vector<front::Candidate> candidates;
  for (const ProbedBackend& backend : backends) candidates.push_back(backend.candidate);
  front::Decision decision = front::select(candidates, policy, {});
  Json list = Json::array();
  for (size_t i = 0; i < backends.size(); ++i)
    list.push_back(describe(backends[i], decision.verdicts[i], decision.chosen == backends[i].config.name));
  return {{"backends", list},
          {"policy",
           {{"require_remote", policy.require_remote},
            {"min_isolation", front::isolation_name(policy.min_isolation)},
            {"allow_unisolated", policy.allow_unisolated}}}};
}

std::string joined(const Json& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name.get<std::string>();
  return text.empty() ? "none" : text;
}

std::string for_people(const Json& report) {
  std::string text;
  for (const auto& backend : report.at("backends")) {
    std::string mark = backend.at("chosen").get<bool>()     ? "* "
                       : backend.at("eligible").get<bool>() ? "+ "
                                                            : "- ";
    text += mark + backend.at("name").get<std::string>() + ": " + backend.at("verdict").get<std::string>() +
            (backend.at("chosen").get<bool>()     ? ", chosen"
             : backend.at("eligible").get<bool>() ? ", eligible"
                                                  : ", not eligible") +
            "\n";
    text += "    reason        " + backend.at("reason").get<std::string>() + "\n";
    if (auto detail = backend.at("detail").get<std::string>();
        !detail.empty() && detail != backend.at("reason"))
      text += "    detail        " + detail + "\n";
    text += "    isolation     " + backend.at("isolation").get<std::string>() + ", locality " +
            backend.at("locality").get<std::string>() + "\n";
    text += "    capabilities  " + joined(backend.at("capabilities")) + "\n";
    text += "    plugin        " + backend.at("plugin").get<std::string>() + " " +
            backend.at("version").get<std::string>() + "\n";
  }
  const auto& policy = report.at("policy");
  auto spelled = [&](const char* name) {
    return std::string(policy.at(name).get<bool>() ? "true" : "false");
  };
  return text + "policy: require_remote " + spelled("require_remote") + ", min_isolation " +
         policy.at("min_isolation").get<std::string>() + ", allow_unisolated " + spelled("allow_unisolated") +
         "\n";
}

int show(const Json& report, bool json) try {
  bool any = false;
  for (const auto& backend : report.at("backends")) any = any || backend.at("eligible").get<bool>();
  print(json ? report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
             : for_terminal(for_people(report)));
  if (!any && !json) complain("no backend may serve: every exec would be refused");
  return any ? kDone : kFailed;
} catch (const Json::exception& error) {
  complain(std::string("the gateway's answer makes no sense: ") + error.what());
  return kGateway;
}

int ask_gateway(HttpClient& client, bool json) {
  HttpRequest request;
  request.method = "GET";
  request.target = "/backends";
  auto answer = client.call(request);
  if (!answer.ok()) return report(answer.error(), json);
  if (!answer->ok()) return report_refusal(*answer, json);
  Json parsed = Json::parse(answer->body, nullptr, false);
  return show(parsed, json);
}

int probe_here(const ProbeOptions& options) {
  auto loaded = load_config(load_options(options.config));
  if (!loaded.ok()) return report_config(loaded.error());
  auto backends = probe_backends(loaded->config);
  if (backends.ok()) return show(report_of(loaded->config, *backends), options.client.json);
  if (backends.error().status == ISOGATE_CANCELLED) return kInterrupted;
  complain(backends.error().message);
  return kFailed;
}

}  // namespace

int run_probe(const ProbeOptions& options) {
  if (!options.config.file.empty() || !options.config.backends.empty()) return probe_here(options);
  auto client = find_running_gateway(options.client);
  if (!client.ok()) return report(client.error(), options.client.json);
  if (!*client) {
    const std::string note = "no gateway and no state directory here: this host, by the default settings\n";
    if (options.client.json)
      complain("note: " + note.substr(0, note.size() - 1));
    else
      print(note);
    return probe_here(options);
  }
  end_on_signals();
  return ask_gateway(**client, options.client.json);
}

}  // namespace isogate::cli
