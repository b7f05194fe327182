/* A program goes on after its first thread has ended: /proc/self then says little of it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"

static pthread_t first;

static void use(const char *name) {
    struct stat status;
    char text[16] = "";
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0666);
    MUST(fd >= 0 && fstat(fd, &status) == 0);
    printf("%s: mode %o\n", name, status.st_mode & 07777);
    TELL(write(fd, "bytes", 5));
    TELL(pread(fd, text, 5, 0));
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(map != MAP_FAILED);
    TELL(memcmp(map, "bytes", 5));
    TELL(munmap(map, 4096));
    TELL(close(fd));
    FILE *stream = fopen(name, "r");
    MUST(stream != NULL && fgets(text, sizeof text, stream) != NULL && fclose(stream) == 0);
    printf("%s\n", text);
}

static void *go_on(void *none) {
    (void)none;
    MUST(pthread_join(first, NULL) == 0);
    /* The thread is gone a moment after it was waited for. */
    struct stat status;
    while (stat("/proc/self/fd/1", &status) == 0) {
        usleep(1000);
    }
    use("file");
    TELL(mkdir("directory", 0777));
    TELL(chdir("directory"));
    TELL(stat("../file", &status));
    use("below");
    TELL(chdir("/"));
    int above = open(getenv("HERE"), O_RDONLY | O_DIRECTORY);
    MUST(above >= 0);
    TELL(fstatat(above, "directory/below", &status, 0));
    TELL(fchdir(above));
    TELL(rename("file", "moved"));
    /* Private memory of its own may be anything's. */
    int own = memfd_create("own", 0);
    MUST(own >= 0 && ftruncate(own, 8192) == 0);
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    MUST(map != MAP_FAILED);
    TELL(remap_file_pages(map, 4096, 0, 1, 0));
    pid_t child = fork();
    if (child == 0) {
        use("of-the-child");
        exit(0);
    }
    int ended = -1;
    MUST(waitpid(child, &ended, 0) == child);
    printf("%d\n", ended);
    fflush(stdout);
    exit(0);
}

int main(void) {
    pthread_t thread;
    first = pthread_self();
    MUST(pthread_create(&thread, NULL, go_on, NULL) == 0);
    pthread_exit(NULL);
}
