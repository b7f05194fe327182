# What one machine does with git when it is its turn; in the directory of the repositories.
export HOME=$PWD/home GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
set -e
case $1 in
make) git init -q -b main one; git init -q --bare -b main bare ;;
commit) # NUMBER
    cd one; mkdir -p d$(($2 % 3)); seq $(($2 * 500)) > d$(($2 % 3))/f$2; echo $2 >> log
    git add -A; git commit -q -m "number $2"; git status --short ;;
collect) cd one; git gc -q; git fsck --full --strict; git count-objects | cut -d' ' -f1 ;;
clone) git clone -q one $2; cd $2; git fsck --full --strict; git log --format=%s | tr '\n' ' ' ;;
give) # CLONE BRANCH
    cd $2; git checkout -q -b $3; echo $3 > log; git commit -qam $3; git push -q origin $3 ;;
merge) cd one; git merge -q $2; git fsck --full --strict; cat log; git status --short ;;
push) # NAME: own commits into what all push to, as long as others are faster
    git clone -q bare $2 2> /dev/null; cd $2; git checkout -q -B main
    for number in 1 2 3 4; do
        seq $number > $2.$number; git add -A; git commit -q -m $2.$number
        for try in $(seq 100); do
            git pull -q --rebase origin main > /dev/null 2>&1 || true
            git push -q origin main > /dev/null 2>&1 && continue 2
        done
        echo "in vain: $2.$number"; exit 1
    done ;;
look) git -C bare fsck --full --strict --no-dangling; git -C bare log --format=%s main | sort | tr '\n' ' ' ;;
esac
