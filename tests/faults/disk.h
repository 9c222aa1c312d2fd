// A file system of a test's own, an ext4 on a loop device, and what may become of it.
#pragma once

#include <string>

#include "tests/support/program.h"

namespace isogate::test {

class Disk {
 public:
  // `below_mb`: what its image may take of a file system of its own; 0: as much as it likes.
  explicit Disk(int mb = 256, int below_mb = 0);
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk();

  [[nodiscard]] bool usable() const { return mounted_; }  // false: none can be mounted here
  [[nodiscard]] std::string path() const { return place_.path() + "/disk"; }

  // It takes no write; whatever becomes of this test, not for longer than two minutes.
  void freeze();
  void thaw();
  // Nothing more fits, not even root's.
  void fill() const;
  void make_room() const;
  // As after an error: the kernel makes it read-only.
  void make_read_only() const;
  // What is below takes no block that it did not have: writes of others fail as they are synced.
  void fill_below() const;
  // Whole and empty of what fill() and fill_below() made. Nobody may have a file of it open.
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
