/* A machine's clock, SKEW seconds from what it is: for `/etc/ld.so.preload` of that machine. */
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += SKEW;
    return result;
}
