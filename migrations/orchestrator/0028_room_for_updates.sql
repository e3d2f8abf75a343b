-- A binding changes its role and content often. Pages with room keep the new version of a row beside the old one.
alter table binding set (fillfactor = 50);
