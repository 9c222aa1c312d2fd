#include "tests/support/python.h"

namespace isogate::test {

std::vector<std::string> python(const std::string& code) {
  return {"/usr/bin/python3", "-c",
          "import ctypes,os,sys,errno,socket,struct\n"
          "libc=ctypes.CDLL(None,use_errno=True)\n"
          "def call(*a):\n"
          "  r=libc.syscall(*[ctypes.c_long(x) if isinstance(x,int) else x for x in a])\n"
          "  return r if r!=-1 else -ctypes.get_errno()\n"
          "def reach(family,address):\n"
          "  s=socket.socket(family); s.settimeout(3)\n"
          "  try: s.connect(address); return 0\n"
          "  except socket.timeout: return errno.ETIMEDOUT\n"
          "  except OSError as e: return e.errno\n" +
              code};
}

}  // namespace isogate::test
