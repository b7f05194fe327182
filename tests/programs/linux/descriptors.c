/* Files are read and written while the table of descriptors is full, in a forked child too. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"

enum { LONG = 6 << 20 };

static char bytes[LONG], back[LONG];
static int number;

static void use(int fd, const char *who) {
    struct stat status;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    char name[64];
    for (int i = 0; i < LONG; i++) {
        bytes[i] = (char)(i * 13 + number);
    }
    number++;
    printf("%s\n", who);
    fflush(stdout);
    TELL(open("other", O_RDWR | O_CREAT, 0644));
    TELL(pwrite(fd, bytes, LONG, 0));
    TELL(pread(fd, back, LONG, 0));
    TELL(memcmp(bytes, back, LONG));
    TELL(pwrite(fd, bytes, 5000, LONG + 3000000));
    TELL(fstat(fd, &status));
    TELL(stat("file", &status));
    snprintf(name, sizeof name, "made-by-%d", number);
    TELL(mkdir(name, 0755));
    TELL(rename(name, "moved"));
    TELL(rmdir("moved"));
    TELL(truncate("file", LONG / 2));
    TELL(access("nothing", F_OK));
    TELL(fcntl(fd, F_SETLK, &lock));
    char *map = mmap(NULL, LONG / 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    TELL(map == MAP_FAILED);
    TELL(memcmp(map, bytes, LONG / 2));
    map[5] = 'x';
    TELL(pread(fd, back, 10, 0));
    printf("%c\n", back[5]);
    TELL(munmap(map, LONG / 2));
    char *small = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    TELL(memcmp(small, back, 10));
    TELL(munmap(small, 4096));
    TELL(opendir(".") == NULL);
    TELL(chdir("/"));
    TELL(ftruncate(fd, 0));
    fflush(stdout);
}

/* With an argument: as another user, who could not pass the way to where the files' memory is. */
int main(int count, char **arguments) {
    struct rlimit limit;
    if (count > 1) {
        MUST(chmod(".", 0777) == 0 && setegid(65534) == 0 && seteuid(atoi(arguments[1])) == 0);
    }
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 60;
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fd = open("file", O_RDWR | O_CREAT, 0644), here = open(".", O_RDONLY), last = -1;
    int elsewhere = open("/dev/null", O_RDONLY);
    MUST(fd >= 0 && here >= 0 && elsewhere >= 0);
    for (int copy; (copy = dup(elsewhere)) >= 0;) {
        last = copy;
    }
    MUST(errno == EMFILE);
    use(fd, "itself");
    MUST(fchdir(here) == 0);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            use(fd, "a child");
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    use(fd, "itself again");
    MUST(fchdir(here) == 0 && close(last) == 0);
    TELL(close(open("other", O_RDWR | O_CREAT, 0644)) == 0);
    return 0;
}
