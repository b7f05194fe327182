# The tools of every day; run in an empty directory.
mkdir -p src/sub/deep; seq 1 3000 > src/a; echo b > src/sub/b; echo c > src/sub/deep/c
chmod 640 src/a; chmod 750 src/sub
touch -d '2001-02-03 04:05:06.123456789' src/sub/b src/a
cp -a src dst; stat -c '%n %a %s %y' dst/a dst/sub/b; cp --preserve=all src/a kept
cp -u src/a kept; cp --sparse=always src/a sparse; cp -b src/a kept; cp -r src again; ls -R
mv dst moved; mv moved/a moved/z; mv -n kept sparse; mv -T again once; mv kept src/sub
outside=$(mktemp -d); mv once "$outside/"; cat "$outside/once/sub/b"; mv "$outside/once" back
rm -r "$outside"; ls -R back
find . | sort; find . -type f -name '[abc]' | sort; find . -newer src/sub/b | sort
find src -type f -exec wc -c {} + | sort; find src -name b -execdir cat {} \;; find back -depth -delete
find src -type f -printf '%p %s %m %b\n' | sort; find src -type f -print0 | xargs -0 sha1sum | sort
ls -la src | awk 'NR > 3 { print $1, $2, $9 }'; ls -1F; ls -S src; ls none; rmdir src; rm -rf moved
dd if=/dev/zero of=z bs=1M count=3 2> /dev/null
dd if=z of=z2 bs=4k seek=10 count=3 conv=notrunc,fsync 2> /dev/null; stat -c %s z z2
truncate -s 100 z; truncate -s +50 z; stat -c %s z; head -c 10 z | od -c; shred -u z2; rm z
du -a src | sort; du -sb --apparent-size src/a; df . | wc -l; stat -f -c %T .
split -n 3 src/a p_; split -l 1000 src/a q_; split -b 5k src/a r_
csplit -s -f cs_ src/a 100 '{3}'; cat p_* | cmp - src/a; cat r_* | cmp - src/a
seq 1 100000 | sed 's/$/ some more text to sort/' | tac > big
sort -S 1M -T . -n big -o sorted; head -1 sorted; sort -S 2M --parallel=2 -T . big | sha1sum
sort -m src/a src/a | wc -l; sort -u -o sorted sorted; rm big sorted
sed -i 's/^1/one/' src/a; sed -i.bak 2d src/a; sed 'w written' src/sub/b; sed -i '$a end' src/sub/b
awk '{ print > ("awk." $1 % 2) }' src/a.bak; awk 'END { print NR > "nr" }' src/a
awk 'BEGIN { while ((getline line < "nr") > 0) print line; printf "x" > "/dev/stdout" }' > out
tac src/a | head -1; rev src/sub/b; tail -c 5 src/a; nl src/sub/b; col -b < src/sub/b
paste src/sub/b src/sub/b; join src/sub/b src/sub/b; comm src/sub/b src/sub/b; tr a-z A-Z < nr
grep -rn end src; grep -l c -r src | sort; cmp src/a src/a.bak; cksum src/sub/b
md5sum src/sub/b > sums; md5sum -c sums; touch -r src/sub/b t; chmod u+x,g-r t; stat -c '%a %F' t
install -m 700 src/sub/b installed; install -d id/ie; stat -c %a installed id
mktemp -p . tmp.XXXXXX | wc -c; mktemp -d ./d.XXXX | wc -c; rm -rf tmp.* d.*
realpath --relative-to=. src/../src/a; readlink -e none; sync src/a; tee t1 t2 < src/sub/b
gzip -kn t1; gunzip -c t1.gz | cmp - t1; xargs -a nr echo; env -C src/sub ls; printf x > /dev/fd/1 > o
echo '4 * 5' > bc; bc bc; diff -r src src; patch --version > /dev/null; look b src/sub/b; date -r src/sub/b +%Y
