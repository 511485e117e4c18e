# Keeps records in memory until they are as many MiB as the first word says, and then checks each of them. A third of a
# record cannot be compressed.
use Digest::MD5 'md5_hex';
sub record { "record $_[0] " . md5_hex($_[0]) . md5_hex(-$_[0]) . " and what is much the same in all of them" x 3 }
# Perl takes some 256 bytes for a record.
my $count = int($ARGV[0] * 1048576 / 256);
push @record, record($_) for 0 .. $count - 1;
print "$count records in memory\n";
$right += $record[$_] eq record($_) for 0 .. $count - 1;
print "$right of $count records are right\n";
exit($right != $count);
