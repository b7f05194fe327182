/* More links of a file, and directories in one, than `_PC_LINK_MAX` says. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "told.h"

enum { MANY = 1000 };

int main(void) {
    struct stat status;
    char name[32];
    close(open("file", O_WRONLY | O_CREAT, 0644));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "link-%d", i);
        MUST(link("file", name) == 0);
    }
    MUST(stat("file", &status) == 0);
    printf("%ld links\n", (long)status.st_nlink);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "link-%d", i);
        MUST(unlink(name) == 0);
    }
    MUST(stat("file", &status) == 0);
    printf("%ld link\n", (long)status.st_nlink);
    MUST(mkdir("directory", 0755) == 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "directory/%d", i);
        MUST(mkdir(name, 0755) == 0);
    }
    MUST(stat("directory", &status) == 0);
    printf("%ld links\n", (long)status.st_nlink);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "directory/%d", i);
        MUST(rmdir(name) == 0);
    }
    MUST(stat("directory", &status) == 0);
    printf("%ld links\n", (long)status.st_nlink);
    return 0;
}
