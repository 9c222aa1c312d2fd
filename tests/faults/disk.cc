#include "tests/faults/disk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "tests/support/api.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

bool succeeds(const std::vector<std::string>& argv) { return run_program(argv).exit_code == 0; }

// Until there is no room for another block; what was written is then on its way to the disk.
void fill_with(const std::string& path) {
  (void)run_program({"dd", "if=/dev/zero", "of=" + path, "bs=64k", "conv=fsync"});
  (void)run_program({"dd", "if=/dev/zero", "of=" + path, "bs=4k", "oflag=append", "conv=notrunc,fsync"});
}

}  // namespace

Disk::Disk(int mb, int below_mb) {
  if (!is_root()) return;
  ::mkdir(below().c_str(), 0711);
  const std::string size = "size=" + std::to_string(below_mb) + "m,mode=0711";
  has_below_ = below_mb != 0 && succeeds({"mount", "-t", "tmpfs", "-o", size, "tmpfs", below()});
  if (below_mb != 0 && !has_below_) return;
  mounted_ = succeeds({"truncate", "-s", std::to_string(mb) + "M", image()}) &&
             succeeds({"mkfs.ext4", "-q", "-F", "-m", "0", image()}) && ::mkdir(path().c_str(), 0711) == 0 &&
             mount();
}

Disk::~Disk() {
  thaw();
  if (mounted_) unmount();
  if (has_below_) {
    EXPECT_TRUE(eventually(20, [&] { return succeeds({"umount", below()}); }));
  }
}

bool Disk::mount() const {
  return succeeds({"mount", "-o", "loop,noatime,errors=remount-ro", image(), path()}) &&
         ::chmod(path().c_str(), 0711) == 0;
}

void Disk::unmount() {
  EXPECT_TRUE(eventually(20, [&] { return succeeds({"umount", path()}); })) << "files of it are still open";
  mounted_ = false;
}

void Disk::freeze() {
  frozen_ = true;
  ASSERT_TRUE(succeeds(
      {"sh", "-c", "(sleep 120; fsfreeze -u \"$1\") >/dev/null 2>&1 & fsfreeze -f \"$1\"", "sh", path()}));
}

void Disk::thaw() {
  if (!std::exchange(frozen_, false)) return;
  EXPECT_TRUE(succeeds({"fsfreeze", "-u", path()}));
}

void Disk::fill() const { fill_with(path() + "/ballast"); }

void Disk::make_room() const { ASSERT_EQ(::unlink((path() + "/ballast").c_str()), 0); }

void Disk::make_read_only() const {
  const std::string device = run_program({"findmnt", "-n", "-o", "SOURCE", path()}).out;
  const std::string name = device.substr(device.rfind('/') + 1, device.find('\n') - device.rfind('/') - 1);
  std::ofstream("/sys/fs/ext4/" + name + "/trigger_fs_error") << "1";
  ASSERT_TRUE(eventually(5, [&] { return !succeeds({"touch", path() + "/probe"}); }));
}

void Disk::fill_below() const { fill_with(below() + "/ballast"); }

void Disk::repair() {
  unmount();
  ::unlink((below() + "/ballast").c_str());
  EXPECT_LE(run_program({"e2fsck", "-f", "-y", image()}).exit_code, 1) << "it cannot be repaired";
  // The kernel may still be detaching the loop device of the first mount.
  mounted_ = eventually(20, [this] { return mount(); });
  ASSERT_TRUE(mounted_);
  ::unlink((path() + "/ballast").c_str());
}

}  // namespace isogate::test
