# A package of this directory is packed, installed and used.
set -e
export npm_config_cache=$PWD/cache npm_config_update_notifier=false npm_config_loglevel=error
mkdir greeter user
echo '{"name":"greeter","version":"1.0.0","main":"main.js"}' > greeter/package.json
echo 'module.exports = (who) => `hello, ${who}`;' > greeter/main.js
(cd greeter && npm pack --silent --offline)
cd user
echo '{"name":"user","version":"1.0.0","private":true}' > package.json
npm install --offline --no-audit --no-fund --silent ../greeter/greeter-1.0.0.tgz
node -e 'console.log(require("greeter")("world"))'
test -f node_modules/greeter/main.js
cd .. && rm -r cache && find . -type f | sort
rm user/package-lock.json user/node_modules/.package-lock.json
