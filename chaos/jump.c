/* A wall clock that jumps, for one worker: loaded before libc, it adds what a shared file says to the time of day.
 * Monotonic clocks are left alone, as a step of NTP leaves them. CHAOS_CLOCK names the file: nanoseconds, eight bytes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_file(void)
{
    const char *name = getenv("CHAOS_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
        offset = page == MAP_FAILED ? NULL : page;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_clock_gettime)
        real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real_clock_gettime(clock, now);
    if (answer == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t sum = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *offset;
        now->tv_sec = sum / 1000000000;
        now->tv_nsec = sum % 1000000000;
    }
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec instant;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &instant);
    now->tv_sec = instant.tv_sec;
    now->tv_usec = instant.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec instant;
    clock_gettime(CLOCK_REALTIME, &instant);
    if (now)
        *now = instant.tv_sec;
    return instant.tv_sec;
}
