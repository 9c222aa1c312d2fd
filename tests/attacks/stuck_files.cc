#include "tests/attacks/stuck_files.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace isogate::test {
namespace {

constexpr uint64_t kFile = 2;

fuse_attr attributes_of(uint64_t node) {
  fuse_attr attributes{};
  attributes.ino = node;
  attributes.mode = node == kFile ? S_IFREG | 0444 : S_IFDIR | 0755;
  attributes.nlink = 1;
  attributes.size = node == kFile ? 4096 : 0;
  attributes.blksize = 4096;
  return attributes;
}

}  // namespace

std::string StuckFiles::obstacle() {
  if (::geteuid() != 0) return "only root mounts";
  return ::access("/dev/fuse", R_OK | W_OK) == 0 ? "" : "there is no /dev/fuse";
}

StuckFiles::StuckFiles()
    : device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  const std::string options =
      "fd=" + std::to_string(device_.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
  if (::mount("stuck", path().c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    throw std::runtime_error(std::string("cannot mount with FUSE: ") + std::strerror(errno));
  server_ = std::thread([this] { serve(); });
}

StuckFiles::~StuckFiles() { release(); }

void StuckFiles::release() {
  if (!server_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  server_.join();
  device_.reset();  // the kernel then ends all requests
  ::umount2(path().c_str(), MNT_DETACH);
}

void StuckFiles::serve() {
  std::vector<char> request(1 << 20);
  for (;;) {
    pollfd ready[] = {{device_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    const ssize_t size = ::read(device_.get(), request.data(), request.size());
    if (size >= static_cast<ssize_t>(sizeof(fuse_in_header))) answer(request.data());
    if (size < 0 && errno == ENODEV) return;
  }
}

void StuckFiles::reply(const char* request, int error, const void* body, size_t size) const {
  fuse_in_header head{};
  std::memcpy(&head, request, sizeof head);
  fuse_out_header out{static_cast<uint32_t>(sizeof out + size), -error, head.unique};
  iovec parts[] = {{&out, sizeof out}, {const_cast<void*>(body), size}};
  [[maybe_unused]] const ssize_t sent = ::writev(device_.get(), parts, size == 0 ? 1 : 2);
}

void StuckFiles::answer(const char* request) {
  fuse_in_header head{};
  std::memcpy(&head, request, sizeof head);
  switch (head.opcode) {
    case FUSE_INIT: {
      fuse_init_out init{};
      init.major = FUSE_KERNEL_VERSION;
      init.minor = FUSE_KERNEL_MINOR_VERSION;
      init.max_write = 4096;
      return reply(request, 0, &init, sizeof init);
    }
    case FUSE_LOOKUP: {
      if (std::strcmp(request + sizeof head, "stuck") != 0) return reply(request, ENOENT);
      fuse_entry_out entry{};
      entry.nodeid = kFile;
      entry.attr = attributes_of(kFile);
      return reply(request, 0, &entry, sizeof entry);
    }
    case FUSE_GETATTR: {
      fuse_attr_out attributes{};
      attributes.attr = attributes_of(head.nodeid);
      return reply(request, 0, &attributes, sizeof attributes);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
      fuse_open_out open{};
      open.open_flags = FOPEN_DIRECT_IO;
      return reply(request, 0, &open, sizeof open);
    }
    case FUSE_STATFS: {
      fuse_statfs_out room{};
      return reply(request, 0, &room, sizeof room);
    }
    case FUSE_READDIR:
    case FUSE_ACCESS:
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
      return reply(request, 0);
    case FUSE_READ:
      read_ = true;
      return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;
    default:
      return reply(request, ENOSYS);
  }
}

}  // namespace isogate::test
