/* A fork bomb, to be bounded by whoever starts it. Never sanitized: a sanitizer's fork waits for its own threads. */
#define _DEFAULT_SOURCE
#include <unistd.h>

int main(void) {
  for (;;) {
    const pid_t child = fork();
    if (child == 0) setsid();
    if (child < 0) usleep(20000); /* at its bound; the test's other half wants to run too */
  }
}
