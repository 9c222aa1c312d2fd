/* port_server KIND PORT: what listens in a sandbox, on 127.0.0.1, for the cases about ports. Writes "ready" once it does.
 *
 *   echo    sends back what comes, to its end        six     the same, only on [::1]
 *   count   reads to the end, then writes the number of bytes, and sends it
 *   flood   sends 10 MiB of a pattern and ends       hold    neither reads nor sends
 *   pour    the same, then reads to the end and writes how many bytes came
 *   reset   reads a byte and breaks the connection   full    accepts nobody
 *   half    accepts an upgrade, sends "half" and, once a byte comes, breaks the connection
 *   last    accepts an upgrade, sends "done", ends its output, and writes how many bytes still come
 *   http    answers a request with its head, as it came, and what follows it for as long as it comes
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buffer[65536];

static int write_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    ssize_t n = write(fd, bytes, size);
    if (n <= 0) return -1;
    bytes += n;
    size -= (size_t)n;
  }
  return 0;
}

static void echo(int fd) {
  ssize_t n;
  while ((n = read(fd, buffer, sizeof buffer)) > 0 && write_all(fd, buffer, (size_t)n) == 0) {
  }
}

/* Reads to the end, and writes how many bytes came. The size of that line, which is in `buffer`. */
static size_t write_count(int fd) {
  unsigned long long all = 0;
  ssize_t n;
  while ((n = read(fd, buffer, sizeof buffer)) > 0) all += (unsigned long long)n;
  size_t size = (size_t)snprintf(buffer, sizeof buffer, "%llu%s\n", all, n < 0 ? " broken" : "");
  (void)write_all(1, buffer, size);
  return size;
}

static void count(int fd) {
  size_t size = write_count(fd);
  (void)write_all(fd, buffer, size);
}

static void flood(int fd) {
  for (size_t i = 0; i < sizeof buffer; ++i) buffer[i] = (char)(i * 31 >> 3);
  for (int i = 0; i < 160 && write_all(fd, buffer, sizeof buffer) == 0; ++i) {
  }
}

static void reset(int fd) {
  struct linger at_once = {1, 0};
  (void)read(fd, buffer, 1);
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static void half(int fd) {
  static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nhalf";
  if (read(fd, buffer, sizeof buffer) > 0 && write_all(fd, head, sizeof head - 1) == 0) reset(fd);
}

static void last(int fd) {
  static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\ndone";
  if (read(fd, buffer, sizeof buffer) <= 0 || write_all(fd, head, sizeof head - 1) != 0) return;
  shutdown(fd, SHUT_WR);
  (void)write_count(fd);
}

/* Whether a chunked body ends with these bytes; `tail` has the five before them, and then the last five. */
static int ends_chunks(char tail[5], const char* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    memmove(tail, tail + 1, 4);
    tail[4] = bytes[i];
  }
  return memcmp(tail, "0\r\n\r\n", 5) == 0;
}

/* Accepts an upgrade and then echoes. Sends a body back after the head. */
static void http(int fd) {
  size_t size = 0;
  char* end = NULL;
  while (end == NULL && size + 1 < sizeof buffer) {
    ssize_t n = read(fd, buffer + size, sizeof buffer - 1 - size);
    if (n <= 0) return;
    size += (size_t)n;
    buffer[size] = '\0';
    end = strstr(buffer, "\r\n\r\n");
  }
  if (end == NULL) return;
  end += 4;
  int upgrade = strstr(buffer, "Upgrade: ") != NULL;
  const char* head = upgrade ? "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
                             : "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nX-Own: yes\r\n"
                               "X-Request-Id: theirs\r\n\r\n";
  if (write_all(fd, head, strlen(head)) != 0) return;
  if (!upgrade && write_all(fd, buffer, (size_t)(end - buffer)) != 0) return;
  if (write_all(fd, end, (size_t)(buffer + size - end)) != 0) return;
  const char* length = strstr(buffer, "Content-Length: ");
  size_t left = length != NULL ? (size_t)strtoull(length + 16, NULL, 10) : 0;
  int chunked = !upgrade && strstr(buffer, "Transfer-Encoding: chunked") != NULL;
  if (upgrade || chunked) left = (size_t)-1;
  size_t seen = (size_t)(buffer + size - end);
  char tail[5] = {0};
  if (chunked && ends_chunks(tail, end, seen)) return;
  while (seen < left) {
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0 || write_all(fd, buffer, (size_t)n) != 0) return;
    seen += (size_t)n;
    if (chunked && ends_chunks(tail, buffer, (size_t)n)) return;
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* kind = argv[1];
  const unsigned short port = htons((unsigned short)atoi(argv[2]));
  const int six = strcmp(kind, "six") == 0, on = 1;
  struct sockaddr_in four_address = {.sin_family = AF_INET, .sin_port = port};
  struct sockaddr_in6 six_address = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  four_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const struct sockaddr* address = six ? (const struct sockaddr*)&six_address : (const struct sockaddr*)&four_address;
  int listener = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  signal(SIGCHLD, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  if (listener < 0 || bind(listener, address, six ? sizeof six_address : sizeof four_address) != 0 ||
      listen(listener, strcmp(kind, "full") == 0 ? 0 : 128) != 0) {
    perror("port_server");
    return 1;
  }
  if (write_all(1, "ready\n", 6) != 0) return 1;
  if (strcmp(kind, "full") == 0)
    for (;;) pause();
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) continue;
    if (fork() == 0) {
      close(listener);
      if (strcmp(kind, "count") == 0) count(fd);
      else if (strcmp(kind, "flood") == 0) flood(fd);
      else if (strcmp(kind, "pour") == 0) flood(fd), (void)write_count(fd);
      else if (strcmp(kind, "reset") == 0) reset(fd);
      else if (strcmp(kind, "half") == 0) half(fd);
      else if (strcmp(kind, "last") == 0) last(fd);
      else if (strcmp(kind, "http") == 0) http(fd);
      else if (strcmp(kind, "hold") == 0) pause();
      else echo(fd);
      _exit(0);
    }
    close(fd);
  }
}
