# Programs under $checked, which is a memory checker or nothing; run in an empty directory.
mkdir t; for i in $(seq 10); do seq "$i" 2000 > "t/f$i"; done; ln t/f1 t/h1; ln -s f1 t/s1
$checked cp -a t copy; diff -r t copy && echo same; $checked tar cf t.tar t; mkdir x
$checked tar xf t.tar -C x; diff -r t x/t && echo same; rm t.tar
seq 30000 | tac > numbers; $checked sort -S 100k -T . -o sorted numbers; sort -c sorted && echo sorted
$checked find t -type f | sort; $checked sh -c 'echo a > b; cat < b >> c; mv b d; wc -c < c'
$checked rm -r copy; ls
$checked /usr/bin/python3 -I -S -c "
import os
with open('p', 'w') as f: f.write('x' * 100000)
with open('p', 'a') as f: f.write('more')
os.rename('p', 'q'); print(len(open('q').read())); os.link('q', 'r'); os.unlink('r')
print(sorted(os.listdir('.')), os.stat('q').st_nlink)"
