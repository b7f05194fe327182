# A small project for make, in an empty directory.
cat > Makefile <<'END'
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
program: $(OBJECTS)
	gcc -o $@ $^
%.o: %.c all.h
	gcc -c -o $@ $<
END
for i in 1 2 3 4 5 6; do printf '#include "all.h"\nint f%d(void) { return A; }\n' $i > f$i.c; done
echo '#define A 1' > all.h
echo 'int f1(void); int f6(void); int main(void) { return f1() + f6(); }' > main.c
