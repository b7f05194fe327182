# Hard and symbolic links; run in an empty directory.
echo x > f; ln f h; stat -c %h f h; ln -s f s; cat s; readlink s; ln -sf f s; rm h; stat -c %h f
ln -s none dangling; test -L dangling && echo dangling; echo made > dangling; cat none; rm none
mkdir dir; echo i > dir/i; ln -s dir dl; ls dl; cat dl/i; (cd dl; basename "$(pwd -P)"; cat i)
cat dl/../f; cat missing/../f 2> /dev/null || echo "no way through nothing"; ls -l dl/ | wc -l
cp -l f f2; cp -s f f3; stat -c '%F %h' f2 f3; find . -type l | sort; find -L . -name i | sort
realpath --relative-to=. dl/i; mv f g; ln -sfn g s; cat s; chown -h 0 s 2> /dev/null; touch -h -d 2001-02-03 s
stat -c '%F %Y' s; ln -s s s1; ln -s s1 s2; cat s2; ln -s loop loop; cat loop 2> /dev/null || echo loop
mv dl dl2; readlink dl2; rm dl2/i; ls dir; rmdir dl2 2> /dev/null || echo "a link is no directory"
mkdir tree; echo t > tree/a; ln tree/a tree/b; ln -s a tree/c; ln -s ../g tree/d; ln -s /dev/null tree/e
cp -a tree copy; stat -c '%h %F' copy/a copy/b copy/c; readlink copy/c copy/d copy/e; diff -r tree copy && echo same
tar cf t.tar tree; tar tvf t.tar | grep -c link; mkdir x; tar xf t.tar -C x; stat -c %h x/tree/b; rm t.tar
rsync -aH tree/ r/; stat -c '%h %F' r/a r/b r/c; readlink r/e; rm -r copy x; ls; rm dl2 s s1; ls -d s* d*
outside=$(mktemp -d); ln -s "$PWD/tree" "$outside/in"; cat "$outside/in/a"; echo new > "$outside/in/n"
ls "$outside/in" | wc -l; (cd "$outside/in" && cat n); mv "$outside/in/n" "$outside/n"; cat "$outside/n"; rm -r "$outside"
rm tree/n 2> /dev/null; cat tree/e | wc -c; test tree/a -ef tree/b && echo one; ln f4 f5 2> /dev/null || echo none
perl -e 'open F, ">", "held"; unlink "held"; print F "gone"; open G, "<", "/proc/self/fd/" . fileno F or die; print "reopened\n"'
sh -c 'cat /dev/stdin; cat /proc/self/fd/0' < g; mkdir w; cd w; mv ../w ../w2; basename "$(pwd -P)"; echo in > in; cat ../w2/in
