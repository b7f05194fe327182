# rsync within the directory, into it and out of it; run in an empty directory.
mkdir -p t/a/b t/e; for i in $(seq 50); do echo "content $i" > t/a/f$i; done
seq 1 20000 > t/a/b/big; touch -d '2010-01-01 00:00:00' t/a/f2 t/a t/e; chmod 600 t/a/f1
rsync -a t/ r/ || echo failed; diff -r t r && echo same; stat -c '%n %a %Y' r/a/f2 r/a; stat -c %a r/a/f1
rsync -ac --delete t/ r/; rm r/a/f4; rsync -ai t/ r/ | cut -c 1-5,12-
rsync -a --delay-updates --partial-dir=.p t/ q/; rm t/a/f5; rsync -a --delete -v t/ q/ | grep del
rsync -a -S t/ sparse/; rsync -a --append t/ sparse/; diff -r t sparse && echo same
outside=$(mktemp -d); rsync -a t/ "$outside/"; diff -r t "$outside" && echo same
rsync -a "$outside/" back/; diff -r t back && echo same; rm -r "$outside"
