// The one implementation of Workspace; internal to the runner.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runner/workspace.h"
#include "runner/workspace_identity.h"
#include "runner/workspace_path.h"
#include "runner/workspace_resolve.h"
#include "runner/workspace_room.h"
#include "runner/workspace_stage.h"

namespace isogate {

// What every view (see Workspace::as) of one sandbox shares.
struct WorkspaceState {
  Fd root, staging, host_root;  // O_PATH; staging is empty where writes are staged beside their target
  std::string sandboxes_dir;    // empty: somebody else answers for the disk
  Identity owner;
  const std::vector<SharedDir>* shared_dirs = nullptr;
  bool attached = false;
  bool completion_follows = false;  // a body may be at its end before its completion is told
  std::timed_mutex commit;          // one write at a time between "what is there" and the rename
};

class WorkspaceImpl final : public Workspace {
 public:
  WorkspaceImpl(std::shared_ptr<WorkspaceState> state, const Identity& identity)
      : state_(std::move(state)), identity_(identity) {}

  [[nodiscard]] bool attached() const override { return state_->attached; }
  [[nodiscard]] std::unique_ptr<Workspace> as(const Identity& identity) const override;
  [[nodiscard]] int fd() const override { return state_->root.get(); }
  void set_view(Fd root) override { state_->host_root = std::move(root); }
  Result<Fd> directory(std::string_view cwd) const override;
  Result<isogate_entry> read(const isogate_file_request& request, int cancel_fd) override;
  Result<uint64_t> write(const isogate_file_request& request, int cancel_fd) override;
  Result<void> list(const isogate_file_request& request, const isogate_entry_sink& sink,
                    int cancel_fd) override;
  Result<isogate_entry> stat(const isogate_file_request& request) override;
  Result<void> mkdir(const isogate_file_request& request) override;
  Result<void> move(const isogate_file_request& request) override;
  Result<void> remove(const isogate_file_request& request, int cancel_fd) override;

 private:
  // A path of a request, and the tree it is in.
  struct Target {
    Tree tree;
    PathParts path;
    std::string attempt;  // "cannot read `a/b`"
    [[nodiscard]] Error error(int negative) const { return resolve_error(attempt, tree, negative); }
    [[nodiscard]] Error denied(const std::string& why) const;
    [[nodiscard]] bool is_root() const { return path.parts.empty(); }
  };
  struct Parent {
    Fd fd;                    // O_PATH
    std::vector<Fd> made_in;  // the directories in which missing ones were made
  };

  Result<Target> find(const isogate_file_request& request, const isogate_str& path, const char* verb) const;
  Result<Target> find_to_change(const isogate_file_request& request, const isogate_str& path,
                                const char* verb, bool needs_name) const;
  static Result<Parent> parent_of(const Target& target, bool make_missing);
  static Result<Parent> make_parents(const Target& target, size_t depth);
  static size_t existing_depth(const Target& target, Fd& deepest);
  static Result<Fd> open_regular(const Target& target);
  Result<isogate_entry> read_kernel_file(const Target& target, int file, const struct stat& info,
                                         const isogate_file_request& request, int cancel_fd) const;

  Result<StagedFile> stage(const Target& target, bool parents, Fd& beside) const;
  Result<void> receive(StagedFile& staged, const Target& target, int in, int cancel_fd, int complete_fd,
                       uint64_t& bytes) const;
  Result<void> commit(StagedFile& body, uint64_t bytes, const Target& target,
                      const isogate_file_request& request, int cancel_fd);
  Result<void> append(StagedFile& body, uint64_t bytes, const Parent& parent, const Target& target,
                      const isogate_file_request& request, uint32_t mode, int cancel_fd);
  Result<void> place(StagedFile& staged, const Parent& parent, const Target& target,
                     const isogate_file_request& request, uint32_t mode) const;

  [[nodiscard]] Room room() const;

  // Waits for the others' commits (an append copies the whole file), but not longer than its caller does.
  Result<std::unique_lock<std::timed_mutex>> commit_alone(int cancel_fd) const;

  std::shared_ptr<WorkspaceState> state_;
  Identity identity_;
};

// What is at `leaf` in `parent`, unless it is something a file may not replace: an error then. nullopt:
// nothing.
Result<std::optional<struct stat>> replaceable(int parent, const std::string& leaf,
                                               const std::string& attempt);

}  // namespace isogate
