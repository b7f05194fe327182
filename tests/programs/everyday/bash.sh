# What only bash does; run in an empty directory.
set -e
seq 3 > three
mapfile -t lines < three; echo "${#lines[@]} lines"
cat <(echo substituted) > substituted; cat substituted
diff <(seq 3) three && echo same
shopt -s globstar nullglob; mkdir -p d/e; touch d/e/f; echo **
read -r x <<< "here string"; echo "$x"
{ echo out; echo err >&2; } &> both; cat both
ls none |& wc -l
exec {number}> named; echo named >&$number; exec {number}>&-; cat named
[[ three -ef ./three ]] && echo same file
pushd d > /dev/null; echo e/*; popd > /dev/null
# It stays until it is told to go: bash forgets its descriptors when it is gone.
coproc { cat three; read -r; }; head -3 <&"${COPROC[0]}"; echo >&"${COPROC[1]}"; wait
