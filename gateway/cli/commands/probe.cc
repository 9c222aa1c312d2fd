// isogate probe
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/effective_config.h"
#include "gateway/cli/output.h"
#include "gateway/cli/probe_hosts.h"
#include "gateway/front/backends/backend_report.h"

namespace isogate::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson report_of(const Config& config, const std::vector<ProbedBackend>& backends) {
  const front::Decision decision = choose(config, backends);
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < backends.size(); ++i) {
    const auto& [config_of, hello, candidate, setting] = backends[i];
    list.push_back(front::backend_json({config_of, hello, candidate.probe, candidate.state, candidate.reason},
                                       decision.verdicts[i], decision));
  }
  return {{"backends", list}, {"policy", front::policy_json(front::policy_of(config))}};
}

std::string report_text(const OrderedJson& report) {
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
        !detail.empty() && detail != backend.at("reason").get<std::string>())
      text += "    detail        " + detail + "\n";
    text += "    isolation     " + backend.at("isolation").get<std::string>() + ", locality " +
            backend.at("locality").get<std::string>() + "\n";
    text += "    capabilities  " + listed(backend.at("capabilities")) + "\n";
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

int show_report(const OrderedJson& report, bool json) try {
  bool any = false;
  for (const auto& backend : report.at("backends")) any = any || backend.at("eligible").get<bool>();
  print(json ? report.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n"
             : for_terminal(report_text(report)));
  if (!any && !json) complain("no backend may serve: every exec would be refused");
  return any ? kDone : kFailed;
} catch (const OrderedJson::exception& error) {
  return makes_no_sense(error);
}

int ask_gateway(HttpClient& client, bool json) {
  const auto [failed, answer] = ask(client, {.method = "GET", .target = "/backends"}, json);
  if (failed != kDone) return failed;
  return show_report(OrderedJson::parse(answer.body, nullptr, false), json);
}

int probe_here(const ProbeOptions& options) {
  auto loaded = load_config(load_options(options.config));
  if (!loaded.ok()) return report_config(loaded.error());
  auto backends = probe_backends(loaded->config, loaded->config.require_remote ? 3 : 1);
  if (backends.ok()) return show_report(report_of(loaded->config, *backends), options.client.json);
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
