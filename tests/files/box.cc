#include "tests/files/box.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

namespace isogate::test {

bool is_root() { return ::geteuid() == 0; }

Identity tenant() { return is_root() ? Identity{true, 23456, 23456} : Identity{}; }

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void spill(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  ASSERT_TRUE(file.flush()) << path;
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

bool Listed::has(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

isogate_file_request request_for(std::string_view path) {
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.path = {path.data(), path.size()};
  request.limit = UINT64_MAX;
  request.fd = -1;
  request.complete_fd = -1;
  return request;
}

Box::Box() {
  std::string pattern = "/tmp/isogate-workspace-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  top_ = pattern;
  sandboxes_ = top_ + "/sandboxes";
  outside_ = top_ + "/outside";
  ::chmod(top_.c_str(), 0755);
  ::mkdir(sandboxes_.c_str(), 0711);
  ::mkdir(outside_.c_str(), 0777);
  ::chmod(outside_.c_str(), 0777);
  open();
}

Box::~Box() {
  EXPECT_EQ(static_cast<uid_t>(::syscall(SYS_setfsuid, -1)), ::geteuid()) << "an identity was left behind";
  EXPECT_EQ(static_cast<gid_t>(::syscall(SYS_setfsgid, -1)), ::getegid()) << "an identity was left behind";
  workspace_.reset();
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  std::error_code ignored;
  std::filesystem::remove_all(top_, ignored);
}

void Box::open(bool host_view, std::vector<SharedDir>* shared) {
  Workspace::Options options{sandboxes_, kId, tenant(), shared, host_view, "test"};
  auto opened = Workspace::open(options, false);
  if (!opened) throw std::runtime_error(opened.error().message);
  workspace_ = std::move(*opened);
}

std::string Box::inside(const std::string& name) const { return sandbox() + "/workspace/" + name; }

std::vector<std::string> Box::staged() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(sandbox() + "/staging/files"))
    names.push_back(entry.path().filename());
  return names;
}

void Box::plant(const std::string& name, const std::string& content, int mode) {
  spill(inside(name), content);
  ASSERT_EQ(::chmod(inside(name).c_str(), mode), 0);
  if (is_root()) {
    ASSERT_EQ(::chown(inside(name).c_str(), tenant().uid, tenant().gid), 0);
  }
}

void Box::link(const std::string& target, const std::string& name) {
  ASSERT_EQ(::symlink(target.c_str(), inside(name).c_str()), 0);
}

void Box::directory(const std::string& name, int mode) {
  ASSERT_EQ(::mkdir(inside(name).c_str(), 0700), 0);
  if (is_root()) {
    ASSERT_EQ(::chown(inside(name).c_str(), tenant().uid, tenant().gid), 0);
  }
  ASSERT_EQ(::chmod(inside(name).c_str(), mode), 0);
}

Result<std::string> Box::read(const std::string& path, uint64_t offset, uint64_t limit, uint32_t scope) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  auto request = request_for(path);
  request.offset = offset;
  request.limit = limit;
  request.scope = scope;
  request.fd = pipe->write.get();
  std::string content;
  std::thread reader([&] {
    std::vector<char> buffer(1 << 16);
    for (ssize_t got; (got = ::read(pipe->read.get(), buffer.data(), buffer.size())) > 0;)
      content.append(buffer.data(), static_cast<size_t>(got));
  });
  auto entry = workspace_->read(request, -1);
  pipe->write.reset();
  reader.join();
  if (!entry) {
    EXPECT_TRUE(content.empty()) << "a failed read returned bytes";
    return entry.error();
  }
  return content;
}

Result<uint64_t> Box::write(const std::string& path, const std::string& content, uint32_t flags,
                            uint32_t mode, uint32_t scope) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  auto request = request_for(path);
  request.flags = flags;
  request.mode = mode;
  request.scope = scope;
  request.fd = pipe->read.get();
  std::thread writer([&] {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    for (size_t at = 0; at < content.size();) {
      const ssize_t done = ::write(pipe->write.get(), content.data() + at, content.size() - at);
      if (done <= 0) break;
      at += static_cast<size_t>(done);
    }
    pipe->write.reset();
  });
  auto written = workspace_->write(request, -1);
  pipe->read.reset();
  writer.join();
  return written;
}

Result<Listed> Box::list(const std::string& path, uint32_t flags, uint64_t limit, uint32_t scope) {
  auto request = request_for(path);
  request.flags = flags;
  request.limit = limit;
  request.scope = scope;
  Listed listed;
  const isogate_entry_sink sink{&listed, [](void* ctx, const isogate_entry* entry) -> isogate_status {
                                  static_cast<Listed*>(ctx)->names.emplace_back(entry->name.ptr,
                                                                                entry->name.len);
                                  static_cast<Listed*>(ctx)->entries.push_back(*entry);
                                  return ISOGATE_OK;
                                }};
  if (auto done = workspace_->list(request, sink, -1); !done) return done.error();
  return listed;
}

Result<isogate_entry> Box::stat(const std::string& path, uint32_t scope) {
  auto request = request_for(path);
  request.scope = scope;
  return workspace_->stat(request);
}

Result<void> Box::mkdir(const std::string& path, uint32_t flags, uint32_t mode) {
  auto request = request_for(path);
  request.flags = flags;
  request.mode = mode;
  return workspace_->mkdir(request);
}

Result<void> Box::move(const std::string& from, const std::string& to, uint32_t flags) {
  auto request = request_for(from);
  request.path_to = {to.data(), to.size()};
  request.flags = flags;
  return workspace_->move(request, -1);
}

Result<void> Box::remove(const std::string& path, uint32_t flags, uint32_t scope) {
  auto request = request_for(path);
  request.flags = flags;
  request.scope = scope;
  return workspace_->remove(request, -1);
}

Swapper::Swapper(std::string directory, std::string one, std::string other)
    : thread_([this, dir = std::move(directory), a = std::move(one), b = std::move(other)] {
        const Fd fd(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        while (!stop_)
          if (::renameat2(fd.get(), a.c_str(), fd.get(), b.c_str(), RENAME_EXCHANGE) == 0) ++count_;
      }) {
  while (count_ == 0) std::this_thread::yield();
}

Swapper::~Swapper() {
  stop_ = true;
  thread_.join();
}

}  // namespace isogate::test
