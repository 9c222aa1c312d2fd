/* In every program of a sanitized build. Crashes stay crashes: tests look at the signal that a process ended by. */
#define CRASHES "handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0"

/* The leak check at exit traces its process by system calls that the front's filter refuses. */
#ifdef ISOGATE_ROLES
#define LEAKS ":detect_leaks=0"
#else
#define LEAKS ""
#endif

__attribute__((visibility("default"))) const char* __asan_default_options(void);
const char* __asan_default_options(void) { return CRASHES ":quarantine_size_mb=16" LEAKS; }

__attribute__((visibility("default"))) const char* __tsan_default_options(void);
const char* __tsan_default_options(void) { return CRASHES ":halt_on_error=1:die_after_fork=0"; }

/* That of gcc 12 does not know pthread_mutex_clocklock, by which a timed mutex is taken: it sees the unlock alone.
   The plugin that a host has loaded is a sealed copy, whose functions have no names here. */
__attribute__((visibility("default"))) const char* __tsan_default_suppressions(void);
const char* __tsan_default_suppressions(void) { return "mutex:std::timed_mutex::unlock\nmutex:plugin.so\n"; }
