/* A fork bomb, to be bounded by whoever starts it. Never sanitized: a sanitizer's fork waits for its own threads. */
#define _DEFAULT_SOURCE
#include <unistd.h>

int main(void) {
  for (;;) {
    const pid_t child = fork();
    if (child == 0) setsid();
    if (child < 0) usleep(300000); /* at its bound: a fork that fails costs the kernel as much as one that does not */
  }
}
