# ruff checks, mends and formats a small package; $1 is ruff.
mkdir -p package/sub
for i in 1 2 3 4 5 6 7 8; do
    printf 'import os, sys\ndef f( a,b ):\n  return  a+b\nx = {  "a":%d }\n' $i > package/m$i.py
    cp package/m$i.py package/sub/
done
printf '[tool.ruff]\nline-length = 60\n' > pyproject.toml
"$1" check . --output-format concise; echo "check: $?"
"$1" check --fix -q .; echo "fix: $?"
"$1" format .; echo "format: $?"
"$1" format --check .; echo "format: $?"
cat package/m1.py
# Its names are hashes of times.
rm -r .ruff_cache
