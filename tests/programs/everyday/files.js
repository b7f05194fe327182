// Files by node's promises, streams and synchronous calls, in the working directory.
'use strict';
const fs = require('fs');
const path = require('path');
const calls = fs.promises;

async function main() {
  await calls.mkdir('a/b/c', { recursive: true });
  await calls.writeFile('a/b/c/f', 'hello');
  console.log(fs.statSync('.').isDirectory(), fs.statSync('a/b/c/f').size,
    (await calls.stat('a/b/c/f')).size);
  const file = await calls.open('a/b/c/f', 'r+');
  console.log((await file.stat()).size, fs.fstatSync(file.fd).isFile());
  await file.write(' world', 5);
  await file.sync();
  await file.close();
  console.log(await calls.readFile('a/b/c/f', 'utf8'));
  await calls.copyFile('a/b/c/f', 'g');
  await calls.cp('a', 'z', { recursive: true });
  await calls.symlink('g', 'l');
  await calls.link('g', 'k');
  await calls.rename('k', 'm');
  console.log((await calls.readdir('.', { recursive: true })).sort().join(' '));
  await calls.rm('z', { recursive: true });
  console.log((await calls.lstat('l')).isSymbolicLink(), path.basename(await calls.realpath('l')));
  await calls.utimes('g', 1, 2);
  console.log((await calls.stat('g')).mtimeMs, await calls.access('nope').catch((e) => e.code));
  const stream = fs.createWriteStream('big');
  for (let i = 0; i < 1000; i++) stream.write('x'.repeat(1000));
  await new Promise((done) => stream.end(done));
  let bytes = 0;
  for await (const piece of fs.createReadStream('big')) bytes += piece.length;
  await calls.truncate('big', 10);
  console.log(bytes, fs.statSync('big').size);
  await calls.rmdir(await calls.mkdtemp('t-'));
  await calls.chmod('g', 0o600);
  await calls.appendFile('g', '!');
  console.log(fs.readFileSync('g', 'utf8'));
}

main();
