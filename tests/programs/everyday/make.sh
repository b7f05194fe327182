# A small C project, built by make -j2, and C++ streams; run in an empty directory.
set -e
echo '#define K 1' > h.h
for i in $(seq 12); do printf '#include "h.h"\nint f%d(int x) { return x + %d + K; }\n' $i $i > f$i.c; done
{ echo '#include <stdio.h>'; for i in $(seq 12); do echo "int f$i(int);"; done
echo 'int main(void) {'; echo 'int s = 0;'; for i in $(seq 12); do echo "s += f$i($i);"; done
echo 'printf("%d\n", s); return 0; }'; } > main.c
cat > Makefile <<'END'
S := $(wildcard *.c)
O := $(S:.c=.o)
prog: libx.a main.o
	$(CC) -o $@ main.o -L. -lx
libx.a: $(filter-out main.o,$(O))
	ar rcs $@ $^
-include $(S:.c=.d)
%.o: %.c
	$(CC) -O1 -g -MMD -c -o $@ $<
END
make -s -j2; ./prog; make -s; touch h.h; make -n | wc -l; make -s -j2; ./prog
gcc -c -save-temps f1.c; gcc -pipe -flto -Wl,-Map=map -o one f*.c main.c; ./one; strip one; ./one
ranlib libx.a; ar t libx.a | wc -l; objcopy -O binary f1.o f1.bin; readelf -h prog | grep Type
cat > cpp.cc <<'END'
#include <fstream>
#include <iostream>
int main() {
    std::ofstream("out") << 42 << std::endl;
    int x;
    std::ifstream("out") >> x;
    std::cout << x << std::endl;
    std::wofstream("wide") << L"w" << 1;
    std::fstream f("out", std::ios::in | std::ios::out | std::ios::ate);
    std::cout << f.tellp() << std::endl;
}
END
if command -v g++ > /dev/null; then g++ -o cpp cpp.cc; ./cpp > printed; cat printed wide; echo; rm cpp; fi
rm -f *.o *.d *.i *.s *.a map one prog
