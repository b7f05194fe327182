# What Perl programs do with files; run in an empty directory.
use strict;
use warnings;
use Cwd;
use Fcntl qw(SEEK_END);
use File::Basename;
use File::Copy;
use File::Find;
use File::Path qw(make_path remove_tree);
use File::Temp qw(tempdir tempfile);
use POSIX ();

open my $f, '>', 'p.txt' or die; print $f "line $_\n" for 1 .. 1000; close $f;
open $f, '<', 'p.txt' or die; my @lines = <$f>; close $f; print scalar(@lines), "\n";
open $f, '+<', 'p.txt' or die; seek $f, 0, SEEK_END; print $f "end\n"; seek $f, 0, 0;
my $first = <$f>; print $first, tell($f), "\n"; truncate $f, 50; close $f; print -s 'p.txt', "\n";
copy('p.txt', 'q.txt') or die; move('q.txt', 'r.txt') or die; print -e 'r.txt' ? "moved\n" : "lost\n";
make_path('m/n/o'); open $f, '>>', 'm/n/o/z' or die; syswrite $f, 'abc'; close $f;
my @found; find(sub { push @found, $File::Find::name }, 'm'); print join(' ', sort @found), "\n";
chdir 'm' or die; print basename(getcwd()), "\n"; chdir '..';
my ($h, $name) = tempfile(DIR => '.', UNLINK => 1); print $h 'tmp'; close $h; print -s $name, "\n";
print -d tempdir(DIR => '.', CLEANUP => 1) ? "directory\n" : "none\n";
print join(' ', sort glob('*.txt')), ' ', (stat 'p.txt')[7], "\n";
opendir my $d, 'm' or die; print join(' ', sort readdir $d), "\n"; closedir $d;
print `wc -l < p.txt`; system('echo hi > s.txt') == 0 or die;
open my $p, '|-', 'cat > pipe.txt'; print $p "piped\n"; close $p;
open $p, '-|', 'cat pipe.txt'; print <$p>; close $p;
rename 's.txt', 't.txt'; unlink 't.txt'; utime 1000, 2000, 'r.txt'; print((stat 'r.txt')[9], "\n");
chmod 0600, 'r.txt'; printf "%o\n", (stat 'r.txt')[2];
{ local ($^I, @ARGV) = ('.orig', 'p.txt'); while (<>) { s/line/LINE/; print } }
open my $out, '>&', \*STDOUT; open STDOUT, '>', 'stdout.txt' or die; $| = 1; print "to file\n";
system 'echo child'; open STDOUT, '>&', $out; system 'cat stdout.txt; tail -1 p.txt; echo';
my $pid = fork; if (!$pid) { open $f, '>', 'child'; print $f 'c'; close $f; POSIX::_exit(0) }
waitpid $pid, 0; remove_tree('m');
