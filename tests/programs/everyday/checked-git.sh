# git under $checked, which is a memory checker or nothing; run in an empty directory.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
$checked git init -q -b main r; cd r; for i in $(seq 10); do seq "$i" 200 > "f$i"; done
$checked git add .; $checked git -c gc.auto=0 commit -qm one; echo more >> f1; $checked git status --short
git log --oneline | cat; git fsck --full; rm -r .git
