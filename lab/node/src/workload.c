// What the containers of the tests run; static, so that the image holds nothing else.
//   workload pause                                   the sandbox: waits
//   workload spin                                    burns CPU
//   workload grow MB                                 takes MB as fast as it can, then waits
//   workload fail                                    ends with code 3
//   workload serve PORT ...                          answers HTTP on PORT, in a process of its own, beside whatever the rest says
//   workload job LIMIT BASE STEP CYCLES UNIT COMPUTE HOLD SEED
//       the paper's job: holds BASE MB always; CYCLES times it computes, grows by a random number of STEPs up to LIMIT, holds, frees.
//       UNIT and COMPUTE are milliseconds of CPU time, so that a CPU quota slows it as it would a real job; HOLD is milliseconds of sleep.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MB (1UL << 20)
#define PARTS 32

static uint64_t state;

static double uniform(void) { // xorshift64*
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (double)((state * 2685821657736338717ULL) >> 11) / 9007199254740992.0;
}

static double cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void compute(double ms) {
  volatile unsigned x = 0;
  for (double end = cpu_ms() + ms; cpu_ms() < end;)
    for (int i = 0; i < 20000; i++) x += i;
}

static char *take(size_t bytes) {
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) exit(3);
  madvise(p, bytes, MADV_NOHUGEPAGE);
  return p;
}

static void touch(char *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096) p[i] = 1;
}

static void stop(int sig) { _exit(sig == SIGTERM ? 143 : 0); }

static void serve(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 16)) exit(4);
  for (;;) {
    char request[4096];
    static const char answer[] = "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n";
    int client = accept(listener, NULL, NULL);
    if (client < 0) continue;
    if (read(client, request, sizeof request) > 0 && write(client, answer, sizeof answer - 1) < 0) perror("write");
    close(client);
  }
}

int main(int n, char **a) {
  signal(SIGTERM, stop);
  signal(SIGINT, stop);
  signal(SIGPIPE, SIG_IGN);
  if (n > 3 && !strcmp(a[1], "serve")) {
    if (!fork()) serve(atoi(a[2]));
    n -= 2;
    a += 2;
  }
  const char *mode = n > 1 ? a[1] : "pause";
  if (!strcmp(mode, "true")) return 0;
  if (!strcmp(mode, "fail")) return 3;
  if (!strcmp(mode, "spin")) for (;;) compute(1000);
  if (!strcmp(mode, "grow") && n > 2) {
    size_t bytes = atol(a[2]) * MB;
    touch(take(bytes), bytes);
  }
  if (!strcmp(mode, "job") && n > 9) {
    size_t limit = atol(a[2]) * MB, base = atol(a[3]) * MB, step = atol(a[4]) * MB;
    int cycles = atoi(a[5]);
    double unit = atof(a[6]), think = atof(a[7]), hold = atof(a[8]);
    state = strtoull(a[9], NULL, 10) * 0x9E3779B97F4A7C15ULL + (uint64_t)getpid() + 1;
    // A restart draws anew: the process and the time differ.
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    state ^= (uint64_t)t.tv_nsec << 20;
    int most = (limit - base) / step;
    touch(take(base), base);
    char *room = take(limit - base);
    for (int c = 0; c < cycles; c++) {
      compute(2 * think * uniform());
      int units = 1 + (int)(uniform() * most);
      for (int u = 0; u < units; u++) {
        double began = cpu_ms(), cost = unit * (0.5 + uniform());
        for (int part = 0; part < PARTS; part++) {
          touch(room + u * step + part * (step / PARTS), step / PARTS);
          double due = began + cost * (part + 1) / PARTS - cpu_ms();
          if (due > 0) compute(due);
        }
      }
      usleep((useconds_t)(2 * hold * uniform() * 1000));
      madvise(room, limit - base, MADV_DONTNEED);
    }
    return 0;
  }
  for (;;) pause();
}
