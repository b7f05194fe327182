# vim, ex, less and patch; run in an empty directory.
seq 1 100 > f; cp f g
vim -es -u NONE -c '%s/^1/one/' -c wq f; head -3 f
vim -es -u NONE -c 'set backup undofile undodir=.' -c 'normal Gofoo' -c 'w! h' -c wq g; tail -1 g; ls -A
rm -f .*.un~ *~
vim -es -u NONE -c 'r f' -c 'w n' -c 'e g' -c 'q!'; wc -l n
vim -es -N -u NONE -c 'set swapfile' -c 'e f' -c 'normal dd' -c x; head -1 f
vim -es -u NONE -c 'e f' -c '%y' -c 'e m' -c 'put' -c 'wq'; wc -l m
vim -es -u NONE -c 'args f g' -c 'argdo %s/5/five/ge | update' -c q; grep -c five f g
printf '%s\n' '$d' w q | ex -s f; wc -l f
less f | head -2; less -E f > l; cmp f l; echo abc | less > l2; cat l2; more f | wc -l
printf 'a\nb\n' > p1; printf 'a\nc\n' > p2; diff --label p1 --label p2 -u p1 p2 > p.diff
if command -v patch > /dev/null; then patch p1 p.diff; cmp p1 p2; fi
ls -A
