#include "runner/exec/pty.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>

namespace isogate {

Result<Pty> open_pty(const Identity& identity, uint16_t rows, uint16_t columns) {
  Pty pty;
  pty.master = Fd(::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!pty.master) return os_error("cannot open a terminal (`/dev/ptmx`)", errno);
  const int locked = 0;
  if (::ioctl(pty.master.get(), TIOCSPTLCK, &locked) != 0) return os_error("cannot unlock a terminal", errno);
  // Through the master, not by name: /dev/pts may be another mount than the master's.
  pty.slave = Fd(::ioctl(pty.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pty.slave) return os_error("cannot open the other side of a terminal", errno);
  if (identity.change && ::fchown(pty.slave.get(), identity.uid, identity.gid) != 0) {
    return os_error("cannot hand a terminal to uid " + std::to_string(identity.uid), errno);
  }
  if (identity.change && ::fchmod(pty.slave.get(), 0600) != 0) {
    return os_error("cannot hand a terminal to uid " + std::to_string(identity.uid), errno);
  }
  const winsize size = {rows == 0 ? uint16_t{24} : rows, columns == 0 ? uint16_t{80} : columns, 0, 0};
  if (::ioctl(pty.master.get(), TIOCSWINSZ, &size) != 0) return os_error("cannot size a terminal", errno);
  return pty;
}

}  // namespace isogate
