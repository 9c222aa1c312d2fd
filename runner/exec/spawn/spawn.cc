#include "runner/exec/spawn/spawn.h"

#include "runner/enclosure/init_protocol.h"
#include "runner/exec/environment.h"

namespace isogate {
namespace {

Result<void> check_command(const Command& command) {
  if (command.argv.empty()) return invalid("cannot run a command without a program: argv is empty");
  for (const auto& argument : command.argv) {
    if (argument.find('\0') != std::string::npos) return invalid("an argument holds a NUL byte");
  }
  return check_environment(command.env);
}

// Where to search for the program; null: it is named by its path, or not at all.
const char* search_path(const Command& command) {
  const std::string& name = command.argv.front();
  if (name.empty() || name.find('/') != std::string::npos) return nullptr;
  for (const auto& [key, value] : command.env) {
    if (key == "PATH") return value.c_str();
  }
  return kDefaultPath;
}

}  // namespace

Result<PreparedProgram> PreparedProgram::make(const Command& command) {
  if (auto checked = check_command(command); !checked.ok()) return checked.error();
  PreparedProgram program;
  program.argv_.reserve(command.argv.size() + 1);
  for (const auto& argument : command.argv) program.argv_.push_back(argument.c_str());
  program.argv_.push_back(nullptr);
  program.strings_.reserve(command.env.size());
  program.envp_.reserve(command.env.size() + 1);
  for (const auto& [name, value] : command.env) {
    std::string& entry = program.strings_.emplace_back();
    entry.reserve(name.size() + value.size() + 1);
    entry.append(name).append(1, '=').append(value);
    program.envp_.push_back(entry.c_str());
  }
  program.envp_.push_back(nullptr);
  program.search_ = search_path(command);
  return program;
}

void PreparedProgram::fill(SpawnPlan& plan) const {
  plan.argv = argv_.data();
  plan.envp = envp_.data();
  plan.search = search_;
}

std::string PreparedProgram::packed(const Command& command) const {
  InitRun head = {};
  head.terminal = command.pty ? 1 : 0;
  head.cwd_beneath = command.cwd.starts_with('/') ? 0 : 1;
  head.searched = search_ != nullptr ? 1 : 0;
  head.arguments = static_cast<uint32_t>(command.argv.size());
  head.variables = static_cast<uint32_t>(strings_.size());
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(command.cwd).append(1, '\0');
  if (search_ != nullptr) bytes.append(search_).append(1, '\0');
  for (const auto* texts : {&command.argv, &strings_}) {
    for (const auto& text : *texts) bytes.append(text).append(1, '\0');
  }
  return bytes;
}

Error describe_failure(const SpawnReport& report, const Identity& identity) {
  const int error = report.os_errno;
  switch (report.stage) {
    case kStageGroup:
      return os_error("cannot put the program into its cgroup", error);
    case kStageNamespaces:
      return os_error("cannot enter the sandbox's namespaces", error);
    case kStageMounts:
      return os_error("cannot mount what each program has of its own (/proc, /dev/shm)", error);
    case kStageFilter:
      return os_error("cannot install the system call filter", error);
    case kStageInit:
      return os_error("cannot start the sandbox's init", error);
    case kStageTerminal:
      return os_error("cannot give the program a terminal", error);
    case kStageStreams:
      return os_error("cannot connect the program's streams", error);
    case kStagePrivileges:
      return os_error("cannot take the program's privileges away", error);
    case kStageIdentity:
      return os_error("cannot run as uid " + std::to_string(identity.uid) + ", gid " +
                          std::to_string(identity.gid) + " (only root may change identities)",
                      error);
    case kStageDirectory:
      return os_error("cannot enter the working directory" +
                          (identity.change ? " as uid " + std::to_string(identity.uid) : std::string()),
                      error);
    default:
      return {ISOGATE_INTERNAL, error, "the program was killed before it could start"};
  }
}

}  // namespace isogate
