/* Faults that a disk or a clock makes, on request: loaded with LD_PRELOAD, armed through the functions at the end.
   An armed write or fsync fails with EIO on files below one folder; clocks jump by some seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long countdown = -1; /* writes until one fails; below 0: none does */
static long jump = 0;       /* seconds */

static int strikes(int fd) {
    char link[64], path[PATH_MAX];
    if (countdown < 0 || !folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    return countdown-- == 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (strikes(fd)) { errno = EIO; return -1; }
    return real(fd, data, size);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (strikes(fd)) { errno = EIO; return -1; }
    return real(fd);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, found);
    if (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC) found->tv_sec += jump;
    return code;
}

void fault_eio(const char *below, long after) { snprintf(folder, sizeof folder, "%s", below); countdown = after; }
void fault_jump(long seconds) { jump += seconds; }
