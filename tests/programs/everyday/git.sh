# A life with git; run in an empty directory. What differs from run to run is removed at the end.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
set -e
git init -q -b main r; cd r
for i in $(seq 60); do mkdir -p d$((i % 5)); seq $i $((i * 20)) > d$((i % 5))/f$i; done
git add .; git commit -qm one; git status --short; echo more >> d1/f1; git status --short
git diff --stat; git commit -qam two; git log --oneline | cat
git checkout -q -b b; echo br > br; git add br; git commit -qm three; git checkout -q main
git merge -q b -m m; git tag -a v1 -m v1; echo s >> br; git stash -q; git stash pop -q; git checkout -q br
git mv br br2; git commit -qm mv; git rm -q d2/f2; git commit -qm rm
git gc -q; git fsck --full; git count-objects -v | grep -v size
git clone -q . ../c; git clone -q --no-local . ../c2; cd ../c2; git log --oneline | cat; git status --short
echo pp > pp; git add pp; git commit -qm pp; git push -q origin HEAD:refs/heads/pushed; cd ../r
git log --oneline pushed | head -1; git repack -adq; git fsck; git bundle create -q ../b all || true
git verify-pack -v .git/objects/pack/*.idx | grep -cE ' (commit|tree|blob|tag) '; git archive HEAD | tar t | wc -l
git worktree add -q ../wt; git -C ../wt status --short; git reflog | wc -l; git blame -s d1/f1 | tail -1
git clean -fdxq; git reset -q --hard HEAD~1; git cat-file --batch-check --batch-all-objects | wc -l
git config user.name x; git config user.name; git update-index --refresh
cd ..; find . -path '*/.git/*' ! -path '*/.git/HEAD' ! -path '*/.git/refs/*' -type f -delete; rm -rf b wt
