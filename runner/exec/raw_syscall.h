// System calls without libc: no errno, no TLS, no lock, no cancellation point, no interceptor.
//
// For code that runs where libc must not: in a child that shares the address space of a suspended
// thread, and in a copied address space of a process with other threads. Results are the kernel's own:
// negative means -errno. Files built on this are listed in runner/CMakeLists.txt, compiled without
// stack protector and sanitizers, and call nothing but each other (tests/runner checks their symbols).
#pragma once

#include <sys/syscall.h>
#include <sys/time.h>

#include <cstdint>
#include <type_traits>

namespace isogate::raw {

#define ISOGATE_RAW [[gnu::always_inline]] static inline

ISOGATE_RAW long call6(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#else
#error "isogate runs on x86-64 and aarch64"
#endif
}

template <typename T>
ISOGATE_RAW long word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}

ISOGATE_RAW long call(long number) { return call6(number, 0, 0, 0, 0, 0, 0); }
template <typename A>
ISOGATE_RAW long call(long number, A a) {
  return call6(number, word(a), 0, 0, 0, 0, 0);
}
template <typename A, typename B>
ISOGATE_RAW long call(long number, A a, B b) {
  return call6(number, word(a), word(b), 0, 0, 0, 0);
}
template <typename A, typename B, typename C>
ISOGATE_RAW long call(long number, A a, B b, C c) {
  return call6(number, word(a), word(b), word(c), 0, 0, 0);
}
template <typename A, typename B, typename C, typename D>
ISOGATE_RAW long call(long number, A a, B b, C c, D d) {
  return call6(number, word(a), word(b), word(c), word(d), 0, 0);
}
template <typename A, typename B, typename C, typename D, typename E>
ISOGATE_RAW long call(long number, A a, B b, C c, D d, E e) {
  return call6(number, word(a), word(b), word(c), word(d), word(e), 0);
}
template <typename A, typename B, typename C, typename D, typename E, typename F>
ISOGATE_RAW long call(long number, A a, B b, C c, D d, E e, F f) {
  return call6(number, word(a), word(b), word(c), word(d), word(e), word(f));
}

struct Time {  // struct timespec, as the kernel has it on 64 bits
  int64_t seconds;
  int64_t nanoseconds;
};

ISOGATE_RAW uint64_t now_ns() {
  Time time = {0, 0};
  call(SYS_clock_gettime, 1 /* CLOCK_MONOTONIC */, &time);
  return static_cast<uint64_t>(time.seconds) * 1000000000u + static_cast<uint64_t>(time.nanoseconds);
}

ISOGATE_RAW Time time_of(uint64_t nanoseconds) {
  return {static_cast<int64_t>(nanoseconds / 1000000000u), static_cast<int64_t>(nanoseconds % 1000000000u)};
}

ISOGATE_RAW uint64_t nanoseconds(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_usec) * 1000u;
}

// Every signal but SIGKILL and SIGSTOP, glibc's own two included.
ISOGATE_RAW void block_signals(uint64_t* old_mask) {
  const uint64_t all = ~uint64_t{0};
  call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &all, old_mask, 8);
}
ISOGATE_RAW void restore_signals(const uint64_t* mask) {
  call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, mask, 0, 8);
}

}  // namespace isogate::raw
