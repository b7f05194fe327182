# A tree with hard links through rsync -aH: within, out and in again; run in an empty directory.
mkdir -p t/a/b t/c; for i in $(seq 40); do echo "content $i" > t/a/f$i; done
for i in $(seq 1 3 40); do ln t/a/f$i t/c/h$i; ln t/a/f$i t/a/b/g$i; done
seq 1 50000 > t/big; ln t/big t/c/big; ln -s a/f1 t/link; ln t/c/h1 t/top
counts() { (cd "$1" && find . -type f -printf '%p %n\n' | sort | sha256sum; find . -type f -links +1 | wc -l); }
outside=$(mktemp -d)
rsync -aH t/ r/; diff -r t r && counts t; counts r
rsync -aH t/ "$outside/"; diff -r t "$outside" && counts "$outside"
rsync -aH "$outside/" back/; diff -r t back && counts back
echo more >> t/a/f1; rm t/c/h4; ln -f t/a/f7 t/c/h10; rsync -aH --delete t/ r/; diff -r t r && counts r
rsync -aH --delete t/ "$outside/"; rsync -aH --delete "$outside/" back/; diff -r t back && counts back
rsync -aHn --delete -i t/ r/ | wc -l; test r/top -ef r/a/f1 && echo one; cmp r/big r/c/big && echo big
rm -r "$outside"
