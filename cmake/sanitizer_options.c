/* In every program of a sanitized build. Crashes stay crashes: tests look at the signal that a process ended by. */
__attribute__((visibility("default"))) const char* __asan_default_options(void);
const char* __asan_default_options(void) {
  return "handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:quarantine_size_mb=16";
}

__attribute__((visibility("default"))) const char* __tsan_default_options(void);
const char* __tsan_default_options(void) {
  return "handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:halt_on_error=1";
}
