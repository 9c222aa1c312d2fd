// A test's own file system, an ext4 on a loop device, and the faults that it may have.
#pragma once

#include <string>

#include "tests/support/program.h"

namespace isogate::test {

class Disk {
 public:
  // `below_mb`: the size of the file system that holds its image; 0: no limit.
  explicit Disk(int mb = 256, int below_mb = 0);
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk();

  [[nodiscard]] bool usable() const { return mounted_; }  // false: no file system can be mounted here
  [[nodiscard]] std::string path() const { return place_.path() + "/disk"; }

  // It accepts no write, for at most two minutes, whatever happens to this test.
  void freeze();
  void thaw();
  // Nothing more fits, not even root's.
  void fill() const;
  void make_room() const;
  // As after an error: the kernel makes it read-only.
  void make_read_only() const;
  // The file system below has no room for new blocks: writes fail when they are synced.
  void fill_below() const;
  // Repairs it and removes what fill() and fill_below() wrote. No file of it may be open.
  void repair();

 private:
  [[nodiscard]] std::string below() const { return place_.path() + "/below"; }
  [[nodiscard]] std::string image() const { return below() + "/image"; }
  [[nodiscard]] bool mount() const;
  void unmount();
  TemporaryDirectory place_;
  bool mounted_ = false, frozen_ = false, has_below_ = false;
};

}  // namespace isogate::test
